#!/usr/bin/python3
"""Adds rows of rounds that another scenario's row has learnt already: no training, a few seconds each.

  reclock.py --scenario=dies,changing --contestant=ddp --optimizer=adam --rate=0.008 --seeds=3-5 --json=rows.jsonl

A contestant that takes the same batches in the same rounds in two scenarios learns the same in both: only the times
differ. This runs both on the clock alone. If every round has the same samples, parts and progress, the new row gets
the times of its own scenario and the looks of the other row, which "learnt_in" names. Else it adds nothing, and
virtual_time.py has to train.

The only other difference is the order in which batch norm's running statistics are averaged.
"""

import argparse
import hashlib
import sys

import contestants
import scenarios
import tasks
import virtual_time
from rounds import Rounds
from rows_file import RowsFile, key


def run_of(task, contestant, scenario, row, looks=4):
    """(row, a digest of the batches of all rounds) on the clock alone."""
    run = Rounds(task, contestant, scenario, row["optimizer"], row["rate"], row["seed"], looks_per_epoch=looks)
    digest = hashlib.sha256()
    inner = run._close

    def close():
        for work, _ in sorted(run.arrived, key=lambda pair: pair[0].worker):
            digest.update(work.batches[0][0].tobytes() + b"and")
        digest.update(repr(min(work.progress for work, _ in run.arrived)).encode())
        inner()
    run._close = close
    return run.run(), digest.digest()


def row_from(task, wanted, rows, known, looks=4):
    """Returns `wanted` (the fields of a row that name a run) with figures, or None if none of `rows` took its samples
    in the same rounds. `task` learns nothing; its samples and batches are those of the rows' task."""
    figures, rounds = run_of(task, contestants.ALL[wanted["contestant"]], known[wanted["scenario"]], wanted, looks)
    same = ("task", "samples", "workers", "epochs", "optimizer", "rate", "seed", "global_batch")
    for row in rows:
        other = contestants.ALL[row["contestant"]]
        if (any(row.get(name) != wanted.get(name) for name in same) or "learnt_in" in row or not other.rounds or
                other.local_steps or len(row["looks"]) != len(figures["looks"])):
            continue
        if run_of(task, other, known[row["scenario"]], row, looks)[1] != rounds:
            continue
        for look, learnt in zip(figures["looks"], row["looks"]):
            assert look["samples"] == learnt["samples"]
            look.update(loss=learnt["loss"], accuracy=learnt["accuracy"])
        return dict(wanted, **figures, computed_seconds=0.0, learnt_in=[row["contestant"], row["scenario"]])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--contestant", required=True)
    parser.add_argument("--optimizer", default="adam,sgd")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rate", type=virtual_time.given_rates, required=True)
    parser.add_argument("--global_batch", action="store_true")
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--json", required=True, help="rows of the task convnet; grows")
    arguments = parser.parse_args()
    file = RowsFile(arguments.json)
    known = scenarios.all_of(arguments.workers)
    # Samples and batches of MNIST's ConvNet with 10,000 training images, and no learning.
    task = tasks.make("clock", "")
    task.global_batch = arguments.global_batch
    missing = 0
    for optimizer in arguments.optimizer.split(","):
        for name in virtual_time.names(arguments.contestant, contestants.ALL):
            for scenario in virtual_time.names(arguments.scenario, known):
                for seed in virtual_time.seeds(arguments.seeds):
                    wanted = {"task": "convnet", "samples": len(task.train[0]),
                              "workers": known[scenario].workers, "optimizer": optimizer, "scenario": scenario,
                              "contestant": name, "seed": seed, "epochs": task.epochs,
                              "rate": virtual_time.rate_of(arguments.rate, contestants.ALL[name])}
                    if arguments.global_batch:
                        wanted["global_batch"] = True
                    if key(wanted) in file.rows:
                        continue
                    row = row_from(task, wanted, list(file.rows.values()), known)
                    missing += row is None
                    if row:
                        file.add(row)
                    print(f"{name} {scenario} {optimizer} seed {seed}: " +
                          (f"as {' in '.join(row['learnt_in'])}, {row['final']['seconds']:.1f} s" if row else
                           "other rounds than any row's"), flush=True)
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
