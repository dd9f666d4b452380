"""Tests that psctl run --target and psctl evaluate --every measure a running job without joining it.

    target_test.py PSCTL PROGRAM JOB
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile


def check_order(series):
    for before, after in zip(series, series[1:]):
        assert before["seconds"] <= after["seconds"], series
        assert before["samples_used"] <= after["samples_used"], series
        assert before["pushes"] <= after["pushes"], series


def targets_are_in_the_report(psctl, program, job, folder):
    report_file = os.path.join(folder, "report.json")
    paced = os.path.join(folder, "paced")
    with open(paced, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{os.path.abspath(program)}" --pace=40 "$@"\n')
    os.chmod(paced, 0o755)
    said = subprocess.run(
        [psctl, "run", f"--job={job}", "--servers=2", "--workers=2", "--set=training.epochs=2",
         f"--worker_binary={paced}", "--slow=1:1.25",
         "--target=accuracy:0.5", "--target=accuracy:1", "--target=loss:1", "--target_every=200ms",
         f"--dir={folder}/run", f"--report={report_file}"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    with open(report_file, encoding="utf-8") as file:
        report = json.load(file)
    assert report["finished"] and report["reconciles"]["all"], report["reconciles"]
    with open(f"{folder}/run/logs/evaluator.log", encoding="utf-8") as file:
        measured = [json.loads(line) for line in file]
    check_order(measured)
    last = measured[-1]
    assert last["samples_used"] == report["samples"], (last, report)
    assert last["pushes"] == report["steps"], (last, report)
    assert abs(last["seconds"] - report["wall_seconds"]) < 1e-3 * last["seconds"]
    # The job's final result equals its last evaluation.
    assert abs(last["loss"] - report["result"]["loss"]) < 1e-4, (last, report["result"])
    assert last["metrics"]["accuracy"] == report["result"]["accuracy"]

    accuracy, never, loss = report["targets"]
    first = next(line for line in measured if line["metrics"]["accuracy"] >= 0.5)
    assert accuracy == {"metric": "accuracy", "value": 0.5,
                        "seconds": float(f"{first['seconds']:.6g}"),
                        "samples": first["samples_used"], "pushes": first["pushes"]}, accuracy
    assert never == {"metric": "accuracy", "value": 1}, never
    first = next(line for line in measured if line["loss"] <= 1)
    assert loss["samples"] == first["samples_used"], loss
    # Printed when the target is reached, and again in the report.
    assert len(re.findall(r"^target accuracy 0.5: after ", said, re.MULTILINE)) == 2, said
    assert "target accuracy 1: not met\n" in said, said
    return len(measured)


def a_running_job_is_measured(psctl, program, job, folder):
    run = subprocess.Popen(
        [psctl, "run", f"--job={job}", "--servers=2", "--workers=2", "--set=training.epochs=1000",
         "--set=training.evaluate=false", f"--worker_binary={program}", f"--dir={folder}/endless"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    addresses = next(filter(None, (re.search(r"psctl status --watch --servers=(\S+)", line)
                                   for line in run.stdout)))[1]
    # The evaluator gets the test set even if the job's workers do not evaluate.
    for samples, flags in ((1000, []), (6000, ["--on_training_data"])):
        watch = subprocess.Popen(
            [psctl, "evaluate", f"--servers={addresses}", "--every=50ms", "--json",
             f"--worker_binary={program}", *flags], stdout=subprocess.PIPE, text=True)
        measured = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.send_signal(signal.SIGTERM)
        watch.communicate()
        assert watch.returncode == 0
        check_order(measured)
        assert measured[0]["seconds"] < measured[2]["seconds"], measured
        assert measured[0]["samples"] == samples, flags
    run.send_signal(signal.SIGINT)
    run.communicate()


def main(psctl, program, job):
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    count = targets_are_in_the_report(psctl, program, job, folder)
    a_running_job_is_measured(psctl, program, job, folder)
    print(f"{count} measurements")


main(*sys.argv[1:])
