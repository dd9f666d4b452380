#!/usr/bin/python3
"""Data-parallel training over gloo, timed: the opponent of torchps in real runs.

  ddp.py --task=convnet --data=DIRECTORY --optimizer=adam --rate=0.008 --pace=50 --slow=2:4 --json=FILE

The network, initial values, batches and schedule are those of virtual_time.py's `ddp`. Each step takes at
least --pace milliseconds for a whole batch, --slow multiplies a rank's, so that all behave as if each had a
core. Rank 0 copies the values now and then, and tests them when the run is over: that costs no time.
Gradients are summed as one vector, which is DDP with one bucket: nothing is sent during the backward pass.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist

import balance
import optimizers
import server
import standstills
import tasks
from flat_model import FlatModel
from samples import SamplePool


def rank_main(rank, arguments, rendezvous, started):
    torch.set_num_threads(1)
    ranks = arguments.workers
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    task = tasks.make(arguments.task, arguments.data, samples=arguments.samples or None)
    task.epochs = arguments.epochs or task.epochs
    model = FlatModel(task, arguments.seed)
    pool = SamplePool(len(task.train[0]), task.epochs, arguments.seed)
    momentum = server.MOMENTUM if arguments.optimizer == "sgd" else 0.0
    optimizer = optimizers.make(arguments.optimizer, task, momentum)
    schedule = optimizers.Schedule(pool.total / (task.batch_size * ranks), task.warmup_steps,
                                   task.final_fraction)
    factors = dict(pair.split(":") for pair in arguments.slow)
    speeds = [1 / float(factors.get(str(each), 1)) for each in range(ranks)]
    batches = balance.by_hand(speeds, task.batch_size) if arguments.by_hand else [task.batch_size] * ranks
    values = model.initial.clone()
    decay = model.decay if task.weight_decay else None
    every = pool.total / task.epochs / arguments.looks
    looks, used, computed, due = [], 0, 0.0, 0.0
    dist.barrier()
    began = time.monotonic()
    started.set()
    while pool.left():
        taken = [pool.take(batch) for batch in batches]
        indices = taken[rank][0]
        begin = time.monotonic()
        gradient = torch.zeros_like(values)
        if len(indices):
            gradient = model.gradient(values, indices) * len(indices)
        took = time.monotonic() - begin
        pace = arguments.pace / 1e3 * len(indices) / task.batch_size / speeds[rank]
        computed += max(took, pace)
        due += pace
        time.sleep(max(0.0, pace - took))
        dist.all_reduce(gradient)
        count = sum(len(each) for each, _ in taken)
        optimizer.step(values, gradient / count, arguments.rate * schedule.factor(taken[0][1]), decay)
        used += count
        if rank == 0 and (used >= (len(looks) + 1) * every or not pool.left()):
            state = {name: buffer.clone() for name, buffer in model.module.named_buffers()}
            looks.append((time.monotonic() - began, used, values.clone(), state))
    stands_still = any(who == rank for _, who, _ in planned(arguments))
    longer = torch.tensor([computed / due if due and not stands_still else 0.0])
    dist.all_reduce(longer, op=dist.ReduceOp.MAX)
    if rank == 0:
        write(arguments, task, model, looks, longer.item())


def planned(arguments):
    return standstills.changes(arguments.scenario, arguments.workers, arguments.seed, arguments.fastest)


def hold(started, ranks, plan):
    """Lets ranks stand still as planned, once they train."""
    started.wait()
    standstills.send([process.pid for process in ranks], plan)


def write(arguments, task, model, looks, of_pace):
    shown = []
    for seconds, used, values, state in looks:
        for name, buffer in model.module.named_buffers():
            buffer.copy_(state[name])
        loss, accuracy = model.test(values)
        shown.append({"seconds": seconds, "samples": used, "bytes": 0, "loss": loss, "accuracy": accuracy})
    row = {"instrument": "real", "task": task.name, "samples": len(task.train[0]),
           "workers": arguments.workers, "optimizer": arguments.optimizer, "scenario": arguments.scenario,
           "contestant": "ddp_by_hand" if arguments.by_hand else "ddp", "rate": arguments.rate,
           "seed": arguments.seed, "looks": shown, "final": shown[-1], "lags": {"0": 1},
           "pushes": 0, "lost": 0, "stopped": 0, "epochs": task.epochs, "of_pace": of_pace}
    with open(arguments.json, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, choices=sorted(tasks.TASKS))
    parser.add_argument("--data", default="")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--optimizer", default="adam", choices=("adam", "sgd"))
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0, help="milliseconds of a step with a whole batch")
    parser.add_argument("--slow", action="append", default=[], help="RANK:FACTOR")
    parser.add_argument("--fastest", type=float, default=0.0, help="the shortest possible time of the run, in seconds")
    parser.add_argument("--by_hand", action="store_true", help="batches by --slow")
    parser.add_argument("--scenario", default="none", help="ranks stand still as it says; speeds come from --slow")
    parser.add_argument("--looks", type=float, default=4, help="each epoch")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spawn = multiprocessing.get_context("spawn")
        started = spawn.Event()
        ranks = [spawn.Process(target=rank_main, args=(rank, arguments, os.path.join(folder, "rendezvous"), started))
                 for rank in range(arguments.workers)]
        for process in ranks:
            process.start()
        # In a thread, since no rank trains if one fails before.
        threading.Thread(target=hold, args=(started, ranks, planned(arguments)), daemon=True).start()
        for process in ranks:
            process.join()
        failed = [rank for rank, process in enumerate(ranks) if process.exitcode]
    if failed:
        raise SystemExit(f"ranks {failed} failed; their messages are above")


if __name__ == "__main__":
    main()
