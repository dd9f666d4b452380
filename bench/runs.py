#!/usr/bin/env python3
"""Trains whole jobs with psctl and compares their reports.

  runs.py seeds --data=DIR      test accuracy over seeds, ASYNC against SYNC
  runs.py staleness --data=DIR  one slot slowed 8 times: the effect of each staleness bound

Each run is a separate process tree on this machine. All figures come from the runs' reports (docs/operate.md).
Prints Markdown. Exits 1 if a requirement is missed: the accuracy is below --at_least, the consistency check
failed, or a clock gap exceeds its bound.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(arguments, settings, extra=()):
    """Runs psctl with --set for each of `settings`. Returns the report."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [
            os.path.join(ROOT, "bazel-bin/tools/psctl"), "run", f"--job={arguments.job}",
            f"--servers={arguments.servers}", f"--workers={arguments.workers}",
            f"--report={report}", *extra
        ]
        if arguments.data:
            command.append(f"--data={arguments.data}")
        command += [f"--set={field}={value}" for field, value in settings.items()]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)}\nfailed:\n{result.stdout}")
        with open(report, encoding="utf-8") as file:
            return json.load(file)


def seeds(arguments):
    print("| mode | seeds | accuracy min | mean | max | per seed | wall time, mean |")
    print("|---|---|---|---|---|---|---|")
    missed = False
    for mode in ("ASYNC", "SYNC"):
        accuracies, seconds = [], []
        for seed in range(1, arguments.seeds + 1):
            report = run(arguments, {"seed": seed, "consistency.mode": mode})
            accuracies.append(report["result"]["accuracy"])
            seconds.append(report["wall_seconds"])
            missed |= accuracies[-1] < arguments.at_least or not report["reconciles"]["all"]
        each = " ".join(f"{100 * accuracy:.2f}" for accuracy in accuracies)
        print(f"| {mode} | {len(accuracies)} | {100 * min(accuracies):.2f} % "
              f"| {100 * statistics.mean(accuracies):.2f} % | {100 * max(accuracies):.2f} % "
              f"| {each} | {statistics.mean(seconds):.1f} s |", flush=True)
    return missed


def staleness(arguments):
    slow = arguments.workers - 1
    print("| bound | largest clock gap | mean gap | wall time | slot steps "
          "| waiting, fast slots | accuracy |")
    print("|---|---|---|---|---|---|---|")
    missed = False
    for bound in (0, 1, 4, -1):
        # With batch sizes by speed, no slot would get ahead of another.
        report = run(arguments, {"consistency.mode": "ASYNC", "consistency.staleness_bound": bound,
                                 "training.balance": "EQUAL"}, [f"--slow={slow}:8"])
        gap = report["clock_gap"]
        slots = report["slots"]
        waiting = statistics.mean(slot["shares"]["wait"] for slot in slots if slot["slot"] != slow)
        missed |= 0 <= bound < gap["max"] or not report["reconciles"]["all"]
        print(f"| {'none' if bound < 0 else bound} | {gap['max']} | {gap['mean']:.2f} "
              f"| {report['wall_seconds']:.1f} s | {' '.join(str(slot['steps']) for slot in slots)} "
              f"| {100 * waiting:.0f} % | {100 * report['result']['accuracy']:.2f} % |", flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["seeds", "staleness"])
    parser.add_argument("--job", default=os.path.join(ROOT, "deploy/jobs/convnet_mnist.textproto"))
    parser.add_argument("--data", default="", help="passed on to the workers")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at_least", type=float, default=0.975)
    arguments = parser.parse_args()
    sys.exit(1 if {"seeds": seeds, "staleness": staleness}[arguments.case](arguments) else 0)


if __name__ == "__main__":
    main()
