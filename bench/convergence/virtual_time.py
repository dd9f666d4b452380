#!/usr/bin/python3
"""Trains with real gradients on a virtual clock: any number of workers with a core each, one process.

  virtual_time.py --task=convnet --data=DIRECTORY --optimizer=adam --rate=0.002 --scenario=none,one_slow \\
      --contestant=ddp,sync_balanced,async_batch --global_batch --seeds=1-5 --json=rows.jsonl

Adds each row to the file when it is ready, and repeats no run whose row is there. Debian's python3-torch belongs
to /usr/bin/python3. tables.py and plots.py show the rows.
"""

import argparse
import dataclasses
import sys
import time

import torch

import contestants
import scenarios
import tasks
from rounds import Rounds
from rows_file import RowsFile, key
from whole_batch import WholeBatch


def names(text, known):
    chosen = list(known) if text == "all" else text.split(",")
    for name in chosen:
        if name not in known:
            sys.exit(f"{name} is not known; expected one of {', '.join(known)}, or all")
    return chosen


def seeds(text):
    """"1-5", "3" or "1,4"."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(seed) for seed in text.split(",")]


class Runner:

    def __init__(self, arguments):
        self.arguments = arguments
        self.file = RowsFile(arguments.json)
        self.task = tasks.make(arguments.task, arguments.data, arguments.samples or None)
        self.task.epochs = arguments.epochs or self.task.epochs
        self.task.global_batch = arguments.global_batch

    def run(self, contestant, scenario, optimizer, seed):
        task = self.task
        rate = rate_of(self.arguments.rate, contestant)
        row = {"task": task.name, "samples": len(task.train[0]), "workers": scenario.workers,
               "optimizer": optimizer, "scenario": scenario.name, "contestant": contestant.name,
               "rate": rate, "seed": seed, "epochs": task.epochs}
        if self.arguments.jitter != scenarios.JITTER:
            row["jitter"] = self.arguments.jitter
        if self.arguments.global_batch:
            row["global_batch"] = True
        if key(row) in self.file.rows:
            return
        kind = Rounds if contestant.rounds else WholeBatch
        training = kind(task, contestant, dataclasses.replace(scenario, jitter=self.arguments.jitter), optimizer,
                        rate, seed, self.arguments.looks, self.arguments.look_samples)
        began = time.monotonic()
        row.update(training.run(), computed_seconds=time.monotonic() - began)
        self.file.add(row)
        final = row["final"]
        accuracy = "" if final["accuracy"] is None else f"{100 * final['accuracy']:.2f} %, "
        print(f"{contestant.name} {scenario.name} {optimizer} rate {rate:g} seed {seed}: {accuracy}"
              f"loss {final['loss']:.4f} after {final['seconds']:.1f} s ({row['computed_seconds']:.0f} s here)",
              flush=True)


def given_rates(text):
    """"0.01" for all, or "all=0.008,local_32=0.002"."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {name or "all": float(rate) for name, _, rate in pairs}


def rate_of(given, contestant):
    for name in (contestant.name, "all"):
        if name in given:
            return given[name]
    sys.exit(f"--rate names no rate for {contestant.name}, and none for all")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, choices=sorted(tasks.TASKS))
    parser.add_argument("--data", default="", help="file or folder; transformer and regression can draw theirs")
    parser.add_argument("--samples", type=int, default=0, help="of the training set; 0: all")
    parser.add_argument("--epochs", type=int, default=0, help="0: as the job has it")
    parser.add_argument("--optimizer", default="adam,sgd")
    parser.add_argument("--scenario", default="none")
    parser.add_argument("--contestant", default="all")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--jitter", type=float, default=scenarios.JITTER,
                        help="how much longer than the shortest step the others are, at random")
    parser.add_argument("--global_batch", action="store_true",
                        help="the job's batch is that of all workers together, the product's default")
    parser.add_argument("--rate", type=given_rates, required=True,
                        help="of all contestants, or of each, as all=0.008,local_32=0.002")
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--looks", type=float, default=4, help="at the test set, each epoch")
    parser.add_argument("--look_samples", type=int, default=5000,
                        help="at each but the last, which takes all")
    parser.add_argument("--json", required=True, help="file of rows, one a line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runner = Runner(arguments)
    known = scenarios.all_of(arguments.workers)
    # Seeds outermost: an interrupted run has compared all contestants on few seeds.
    cases = [(contestants.ALL[contestant], known[scenario], optimizer)
             for optimizer in names(arguments.optimizer, ("adam", "sgd"))
             for contestant in names(arguments.contestant, contestants.ALL)
             for scenario in names(arguments.scenario, known)]
    for seed in seeds(arguments.seeds):
        for contestant, scenario, optimizer in cases:
            runner.run(contestant, scenario, optimizer, seed)


if __name__ == "__main__":
    main()
