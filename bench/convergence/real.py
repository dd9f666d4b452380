#!/usr/bin/python3
"""Real runs of torchps and of DDP (ddp.py), one after the other, paced alike.

  real.py --data=DIRECTORY --optimizer=adam --scenario=none,one_slow --rate=0.002 \\
      --contestant=ddp,async_batch --seeds=1 --json=real.jsonl

The job is deploy/jobs/convnet_mnist.textproto with 32 samples for each of three workers. A step on 32 samples takes
--pace milliseconds, 4 times as long on a slow worker, so that each worker seems to have a core of its own. If a
worker's steps took more than 1.15 of their pace on average, the run is repeated, three times at most. No slot
evaluates: torchps' evaluator measures during the job, and ddp.py tests the values that it kept, after the run.
compare.py compares the rows with those of virtual_time.py.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import contestants
import rows_file
import scenarios
import standstills
from virtual_time import given_rates, names, rate_of, seeds

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOB = os.path.join(ROOT, "deploy/jobs/convnet_mnist.textproto")
# (slot, factor) of each scenario. standstills.py says who stands still.
SLOW = {"none": (), "one_slow": ((2, 4),), "pauses": (), "flaky": (), "dies": ()}
REAL = ("ddp", "ddp_by_hand", "sync_balanced", "sync_balanced_half_grace", "async_batch")
WORKERS, BATCH_SIZE, SAMPLES, EPOCHS = 3, 32, 10000, 5
MOST_OF_PACE = 1.15
TRIES = 3


def settings(contestant, optimizer, rate, seed):
    """Job fields for `psctl run --set`."""
    found = {"seed": seed, "optimizer.learning_rate": rate,
             "consistency.mode": "SYNC" if contestant.rounds else "ASYNC",
             "training.balance": "SPEED" if contestant.balance else "EQUAL",
             "training.evaluate": "false",
             "training.global_batch": "false",  # a batch for each worker
             "membership.lease_seconds": scenarios.LEASE_SECONDS}
    if contestant.backup:
        found["consistency.backup_workers"] = contestant.backup
        found["consistency.grace_part"] = contestant.grace_part
    if not contestant.rounds:
        # The default: one batch for all, so that the others take the samples of a worker that pauses.
        found["training.global_batch"] = "true"
        found["training.batch_size"] = BATCH_SIZE * WORKERS
        found["consistency.apply"] = "WHOLE_BATCH"
        found["consistency.patience"] = contestant.patience
    if optimizer == "sgd":
        found["optimizer.sgd.momentum"] = 0.9
    return found


def looks(lines):
    """The evaluator's measurements as virtual_time.py's looks."""
    return [{"seconds": line["seconds"], "samples": line["samples_used"], "bytes": 0, "loss": line["loss"],
             "accuracy": line["metrics"]["accuracy"]} for line in lines]


def of_pace(report, arguments, scenario, seed):
    """The mean time of a slot's steps divided by their pace: the largest of all slots that never stand still, or 0."""
    factors = dict(SLOW[scenario])
    still = {slot for _, slot, _ in planned(arguments, scenario, seed)}
    return max((slot["seconds"]["compute"] /
                (slot["samples"] / BATCH_SIZE * arguments.pace / 1e3 * factors.get(slot["slot"], 1))
                for slot in report["slots"] if slot["samples"] and slot["slot"] not in still), default=0.0)


def fastest(arguments):
    """The shortest possible time of the job, in seconds."""
    return SAMPLES * (arguments.epochs or EPOCHS) / (WORKERS * BATCH_SIZE) * arguments.pace / 1e3


def planned(arguments, scenario, seed):
    return standstills.changes(scenario, WORKERS, seed, fastest(arguments))


def torchps(arguments, contestant, optimizer, scenario, rate, seed):
    """Returns the row, and the time of its steps divided by their pace."""
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.psctl, "run", f"--job={JOB}", f"--data={arguments.data}", "--servers=2",
                   f"--workers={WORKERS}", f"--dir={folder}/run", f"--target_every={arguments.every}",
                   f"--worker_binary={folder}/worker"]
        # The product's pace is of the job's batch_size.
        pace = arguments.pace * (1 if contestant.rounds else WORKERS)
        with open(f"{folder}/worker", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{os.path.abspath(arguments.ps_worker)}" --pace={pace} "$@"\n')
        os.chmod(f"{folder}/worker", 0o755)
        command += [f"--slow={slot}:{factor}" for slot, factor in SLOW[scenario]]
        chosen = settings(contestant, optimizer, rate, seed)
        if arguments.epochs:
            chosen["training.epochs"] = arguments.epochs
        command += [f"--set={field}={value}" for field, value in chosen.items()]
        run(command, f"{folder}/run", planned(arguments, scenario, seed))
        with open(f"{folder}/run/report.json", encoding="utf-8") as file:
            report = json.load(file)
        measured = looks(rows_file.read(f"{folder}/run/logs/evaluator.log"))
    lags = {str(lag): count for lag, count in enumerate(report["lag"]["histogram"]) if count}
    # The job ends before its last measurement does, as DDP's clock stops before ddp.py measures.
    end = report["epochs"][-1]["closed_at_seconds"]
    row = {"looks": measured, "final": {**measured[-1], "seconds": end}, "lags": lags,
           "pushes": report["steps"], "lost": 0, "stopped": 0}
    return row, of_pace(report, arguments, scenario, seed)


def ddp(arguments, contestant, optimizer, scenario, rate, seed):
    with tempfile.TemporaryDirectory() as folder:
        command = ["/usr/bin/python3", os.path.join(os.path.dirname(__file__), "ddp.py"), "--task=convnet",
                   f"--data={arguments.data}", f"--optimizer={optimizer}", f"--rate={rate}",
                   f"--seed={seed}", f"--pace={arguments.pace}", f"--epochs={arguments.epochs}",
                   f"--scenario={scenario}", f"--fastest={fastest(arguments)}", f"--json={folder}/row"]
        command += [f"--slow={rank}:{factor}" for rank, factor in SLOW[scenario]]
        run(command + (["--by_hand"] if contestant.by_hand else []))
        row, = rows_file.read(f"{folder}/row")
    return row, row["of_pace"]


def run(command, folder=None, plan=()):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if plan:
        threading.Thread(target=hold, args=(process.pid, folder, plan), daemon=True).start()
    said, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(command)}\nfailed:\n{said}")


def hold(psctl, folder, plan):
    """Lets the workers of a run stand still as planned, once they train."""
    while not (os.path.exists(f"{folder}/logs/worker-0.log") and os.path.getsize(f"{folder}/logs/worker-0.log")):
        time.sleep(0.1)
    standstills.send([int(subprocess.run(["pgrep", "-P", str(psctl), "-f", "--", f"--slot={slot} "],
                                         stdout=subprocess.PIPE, text=True, check=True).stdout)
                      for slot in range(WORKERS)], plan)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a directory with MNIST as IDX files")
    parser.add_argument("--psctl", default=os.path.join(ROOT, "bazel-bin/torchps/psctl"))
    parser.add_argument("--ps_worker", default=os.path.join(ROOT, "bazel-bin/torchps/ps_worker"))
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--scenario", default="none,one_slow")
    parser.add_argument("--contestant", default="ddp,async_batch", help="of " + ", ".join(REAL))
    parser.add_argument("--rate", type=given_rates, required=True, help="as virtual_time.py has it")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--epochs", type=int, default=0, help="0: as the job has it")
    parser.add_argument("--pace", type=float, default=50, help="milliseconds of a step with a whole batch")
    parser.add_argument("--every", default="1s", help="how often torchps is measured")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    for seed in seeds(arguments.seeds):
        for optimizer in names(arguments.optimizer, ("adam", "sgd")):
            for scenario in names(arguments.scenario, SLOW):
                for name in names(arguments.contestant, REAL):
                    measure(arguments, contestants.ALL[name], optimizer, scenario, seed)


def measure(arguments, contestant, optimizer, scenario, seed):
    rate = rate_of(arguments.rate, contestant)
    kind = ddp if contestant.all_reduce else torchps
    for _ in range(TRIES):
        row, longer = kind(arguments, contestant, optimizer, scenario, rate, seed)
        print(f"{contestant.name} {scenario} {optimizer} rate {rate:g} seed {seed}: "
              f"{100 * row['final']['accuracy']:.2f} % after {row['final']['seconds']:.1f} s, "
              f"steps {longer:.2f} of their pace", flush=True)
        if longer <= MOST_OF_PACE:
            row.update({"instrument": "real", "task": "convnet", "samples": SAMPLES, "workers": WORKERS,
                        "optimizer": optimizer, "scenario": scenario, "contestant": contestant.name,
                        "rate": rate, "seed": seed, "epochs": arguments.epochs or EPOCHS})
            with open(arguments.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            return
    sys.exit(f"steps took more than {MOST_OF_PACE} of their pace, {TRIES} times: the machine has too few "
             "cores for it, or does other work; raise --pace")


if __name__ == "__main__":
    main()
