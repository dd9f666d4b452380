#!/usr/bin/env python3
"""Checks the report of a finished run (docs/operate.md). Exits with 1 if it finds a fault.

    deploy/check_report.py --servers=2 --workers=3 [--accuracy=0.8] [--drilled] report.json

With --drilled, the job used durability.level LOG and processes were killed. Every sample must still be used once, and
no acknowledged push may be rolled back. A restarted worker may use another slot.
"""

import argparse
import json
import sys


def faults(report, servers, workers, accuracy, drilled=False):
    """Yields a sentence for each fault in the report of a finished run."""
    if not report.get("finished"):
        yield f"the job has not finished: its phase is {report.get('phase')!r}"
    found = [server for server in report.get("servers", []) if "error" not in server]
    if len(found) != servers:
        yield f"expected figures of {servers} servers, got {len(found)}"
    trained = [slot for slot in report.get("slots", []) if slot.get("steps", 0) > 0]
    if len(trained) < workers or (len(trained) > workers and not drilled):
        yield f"expected {workers} slots that trained, got {len(trained)}"
    checks = report.get("reconciles", {})
    for name, check in checks.items():
        if name != "all" and check["holds"] is False:
            yield f"the consistency check failed: {name}: expected {check['expected']}, got {check['actual']}"
    if checks.get("all") is not True:
        yield "the consistency check did not pass"
    if drilled:
        samples = checks.get("samples_used", {})
        if samples.get("holds") is not True:
            yield f"expected every sample to be used once, that is {samples.get('expected')}; got {samples.get('actual')}"
        if checks.get("kept_gradients", {}).get("holds") is not True:
            yield "whether every acknowledged gradient is in the model was not judged"
        rolled_back = report.get("rolled_back", {}).get("pushes", 0)  # missing if nothing was rolled back
        if rolled_back > 0:
            yield f"acknowledged steps are lost: {rolled_back}"
    reached = (report.get("result") or {}).get("accuracy")
    if reached is None:
        yield "no evaluation was made"
    elif reached < accuracy:
        yield f"expected an accuracy of at least {accuracy}, got {reached}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--accuracy", type=float, default=0.8)
    parser.add_argument("--drilled", action="store_true")
    parser.add_argument("file")
    options = parser.parse_args()
    try:
        with open(options.file, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"check_report.py: {options.file}: {error}")
    wrong = list(faults(report, options.servers, options.workers, options.accuracy, options.drilled))
    for sentence in wrong:
        print(f"check_report.py: {options.file}: {sentence}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    result = report["result"]
    print(
        f"{options.file}: {len(report['servers'])} servers, {len(report['slots'])} slots, "
        f"{report['samples']} samples, accuracy {result['accuracy']:.4f}, consistency check passed"
        + (", no sample lost or doubled, no acknowledged push rolled back" if options.drilled else "")
    )


if __name__ == "__main__":
    main()
