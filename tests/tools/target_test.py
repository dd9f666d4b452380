"""psctl run --target and psctl evaluate --every measure a running job, and are no part of it.

    target_test.py PSCTL PROGRAM JOB
"""

import json
import os
import re
import subprocess
import sys
import tempfile


def main(psctl, program, job):
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    report_file = os.path.join(folder, "report.json")
    run = subprocess.Popen(
        [psctl, "run", f"--job={job}", "--servers=2", "--workers=2", "--set=training.epochs=2",
         "--set=consistency.staleness_bound=1", f"--worker_binary={program}", "--pace=0:40",
         "--pace=1:40", "--pause=1:0.1:0.5", "--target=accuracy:0.5", "--target=accuracy:2",
         "--target=loss:1", "--target_every=200ms", f"--dir={folder}/run",
         f"--report={report_file}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    watched = None
    for line in run.stdout:
        lines.append(line)
        addresses = re.search(r"psctl status --watch --servers=(\S+)", line)
        if addresses:
            # A second one that watches the same job.
            watched = subprocess.Popen(
                [psctl, "evaluate", f"--servers={addresses[1]}", "--every=100ms", "--json",
                 f"--worker_binary={program}", "--on_training_data"],
                stdout=subprocess.PIPE, text=True)
    assert run.wait() == 0, "".join(lines)
    # The servers may be gone before it has its last values.
    watched.terminate()
    seen = [json.loads(line) for line in watched.stdout if line.startswith("{")]
    watched.wait()

    with open(report_file, encoding="utf-8") as file:
        report = json.load(file)
    assert report["finished"] and report["reconciles"]["all"], report["reconciles"]
    used = report["samples"]
    with open(f"{folder}/run/logs/evaluator.log", encoding="utf-8") as file:
        measured = [json.loads(line) for line in file]
    for series in measured, seen:
        assert len(series) > 1, series
        for before, after in zip(series, series[1:]):
            assert before["seconds"] <= after["seconds"], series
            assert before["samples_used"] <= after["samples_used"], series
    last = measured[-1]
    assert last["samples_used"] == used and last["pushes"] == report["steps"], (last, report)
    assert abs(last["seconds"] - report["wall_seconds"]) < 1e-3 * last["seconds"]
    # What the job ends with is what its last evaluation has measured.
    assert abs(last["loss"] - report["result"]["loss"]) < 1e-4, (last, report["result"])
    assert last["metrics"]["accuracy"] == report["result"]["accuracy"]
    assert seen[0]["samples"] == report["epochs"][0]["samples"], "--on_training_data"

    accuracy, never, loss = report["targets"]
    first = next(line for line in measured if line["metrics"]["accuracy"] >= 0.5)
    assert accuracy == {"metric": "accuracy", "value": 0.5,
                        "seconds": float(f"{first['seconds']:.6g}"),
                        "samples": first["samples_used"], "pushes": first["pushes"]}, accuracy
    assert never == {"metric": "accuracy", "value": 2}, never
    first = next(line for line in measured if line["loss"] <= 1)
    assert loss["samples"] == first["samples_used"], loss
    said = "".join(lines)
    assert len(re.findall(r"^target accuracy 0.5: after ", said, re.MULTILINE)) == 2, said
    assert "target accuracy 2: not met\n" in said, said

    print(f"{len(measured)} and {len(seen)} measurements")


main(*sys.argv[1:])
