#!/usr/bin/env python3
"""DiLoCo by torchft over gloo, timed: what real runs of torchps' local steps are held against.

  VENV/bin/python bench/convergence/torchft_diloco.py --task=convnet --data=DIRECTORY --rate=0.002 --steps=32 \\
      --pace=50 --scenario=one_slow --slow=2:4 --json=FILE

VENV is a Python with torchft 0.2.0 and its torch (python3 -m venv VENV; VENV/bin/pip install torchft numpy); no
other script here needs it. The network, batches, schedule and both optimizers are those of virtual_time.py's
`local_32`: --steps steps of Adam or SGD 0.9 on each worker, then Nesterov on the mean of what they changed. A
lighthouse and the workers, each a replica group of its own, are processes of this machine, and a round waits for
all workers. Steps are paced as ddp.py's. torchft has no round with fewer steps: the samples that do not fill the last
one are not trained on. With --by_hand each worker takes its part of a round's steps by --slow; torchft weighs
all workers alike. (Equal numbers of steps are torchft's way; uneven ones are ours, for a fair opponent.)
"""

import argparse
import json
import multiprocessing
import os
import queue
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import balance
import optimizers
import server
import tasks
from samples import SamplePool

PATIENCE = timedelta(minutes=10)  # for a slow worker, and for a machine that is busy


def grouped(task, module, rate, kind, momentum):
    """torch.optim's optimizer, with weight decay where the job has it."""
    def parameters(undecayed):
        return [value for name, value in module.named_parameters() if task.undecayed(name) == undecayed]
    groups = [{"params": parameters(False), "weight_decay": task.weight_decay},
              {"params": parameters(True), "weight_decay": 0.0}]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=momentum)
    adam = torch.optim.AdamW if task.decoupled else torch.optim.Adam
    return adam(groups, lr=rate, betas=(0.9, task.beta2))


def step_counts(arguments):
    """Steps of each worker in a round, and how long one takes by a fast one's."""
    factors = dict(pair.split(":") for pair in arguments.slow)
    factors = [float(factors.get(str(worker), 1)) for worker in range(arguments.workers)]
    counts = [arguments.steps] * arguments.workers
    if arguments.by_hand:
        counts = balance.by_hand([1 / factor for factor in factors], arguments.steps)
    return counts, factors


def plan(task, arguments, counts):
    """[round][worker]: (indices, progress) of each step, as virtual_time.py's workers would draw them."""
    pool = SamplePool(len(task.train[0]), task.epochs, arguments.seed)
    whole = sum(counts) * task.batch_size
    return [[[pool.take(task.batch_size) for _ in range(count)] for count in counts]
            for _ in range(pool.total // whole)], pool.total


def worker_main(rank, arguments, lighthouse, results):
    from torchft import Manager, ProcessGroupGloo
    from torchft.local_sgd import DiLoCo

    torch.set_num_threads(1)
    task = tasks.make(arguments.task, arguments.data, samples=arguments.samples or None)
    task.epochs = arguments.epochs or task.epochs
    counts, factors = step_counts(arguments)
    rounds, total = plan(task, arguments, counts)
    schedule = optimizers.Schedule(total / (task.batch_size * arguments.workers), task.warmup_steps,
                                   task.final_fraction)
    torch.manual_seed(arguments.seed)
    module = task.module()
    inner = grouped(task, module, arguments.rate, arguments.optimizer, server.MOMENTUM)
    outer = torch.optim.SGD(module.parameters(), lr=server.OUTER_RATE, momentum=server.OUTER_MOMENTUM,
                            nesterov=True)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=PATIENCE), load_state_dict=module.load_state_dict,
                      state_dict=module.state_dict, min_replica_size=arguments.workers,
                      use_async_quorum=False, timeout=PATIENCE, quorum_timeout=PATIENCE, rank=0, world_size=1,
                      store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse,
                      replica_id=f"worker_{rank}_", hostname="127.0.0.1", init_sync=False)
    looks, computed, due, committed = [], 0.0, 0.0, 0
    inputs, targets = task.train
    results.put(rank)
    arguments.begin.wait()
    began = time.monotonic()
    module.train()
    with DiLoCo(manager, [module], inner, outer, sync_every=counts[rank]):
        for number, shares in enumerate(rounds):
            for indices, progress in shares[rank]:
                begin = time.monotonic()
                for group in inner.param_groups:
                    group["lr"] = arguments.rate * schedule.factor(progress)
                chosen = torch.as_tensor(indices)
                inner.zero_grad()
                task.loss(module(inputs[chosen]), targets[chosen]).backward()
                took = time.monotonic() - begin
                pace = arguments.pace / 1e3 * factors[rank]
                computed += max(took, pace)
                due += pace
                time.sleep(max(0.0, pace - took))
                inner.step()  # the last of a round waits for all and merges
            committed = manager.current_step()
            if rank == 0:
                used = sum(counts) * task.batch_size * (number + 1)
                looks.append((time.monotonic() - began, used,
                              {name: value.clone() for name, value in module.state_dict().items()}))
    results.put((computed / due if due else 1.0, committed, tested(task, module, looks)))
    arguments.end.wait()
    manager.shutdown(wait=False)


@torch.no_grad()
def tested(task, module, looks):
    found = []
    inputs, targets = task.test
    module.eval()
    for seconds, used, state in looks:
        module.load_state_dict(state)
        loss, right = 0.0, 0
        for begin in range(0, len(inputs), 250):
            output, wanted = module(inputs[begin:begin + 250]), targets[begin:begin + 250]
            loss += task.loss(output, wanted).item() * len(wanted)
            if task.has_accuracy:
                right += (output.argmax(-1) == wanted).sum().item()
        found.append({"seconds": seconds, "samples": used, "bytes": 0, "loss": loss / len(inputs),
                      "accuracy": right / len(inputs) if task.has_accuracy else None})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, choices=sorted(tasks.TASKS))
    parser.add_argument("--data", default="")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--optimizer", default="adam", choices=("adam", "sgd"))
    parser.add_argument("--rate", type=float, required=True, help="of the inner optimizer")
    parser.add_argument("--steps", type=int, default=32, help="of a worker in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0, help="milliseconds of a step with a whole batch")
    parser.add_argument("--slow", action="append", default=[], help="WORKER:FACTOR")
    parser.add_argument("--by_hand", action="store_true", help="steps by --slow")
    parser.add_argument("--scenario", default="none", help="its name in the row")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()

    os.environ.setdefault("RUST_LOG", "error")  # else twelve lines a round; workers inherit it
    from torchft.coordination import LighthouseServer
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=arguments.workers,
                                  join_timeout_ms=round(1e3 * PATIENCE.total_seconds()))
    address = lighthouse.address()
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    arguments.begin, arguments.end = spawn.Event(), spawn.Event()
    workers = [spawn.Process(target=worker_main, args=(rank, arguments, address, results), daemon=True)
               for rank in range(arguments.workers)]
    for process in workers:
        process.start()

    def answers():
        """One of each worker."""
        found = []
        while len(found) < len(workers):
            try:
                found.append(results.get(timeout=5))
            except queue.Empty:
                dead = [rank for rank, process in enumerate(workers) if process.exitcode]
                if dead:
                    raise SystemExit(f"workers {dead} failed; their messages are above") from None
        return found

    answers()
    arguments.begin.set()
    ends = answers()
    arguments.end.set()
    looks = next(looks for _, _, looks in ends if looks)
    task = tasks.make(arguments.task, arguments.data, samples=arguments.samples or None)
    name = f"torchft_{arguments.steps}" + ("_by_hand" if arguments.by_hand else "")
    of_pace = max(longer for longer, _, _ in ends)
    row = {"instrument": "real", "task": task.name, "samples": len(task.train[0]),
           "workers": arguments.workers, "optimizer": arguments.optimizer, "scenario": arguments.scenario,
           "contestant": name, "rate": arguments.rate, "seed": arguments.seed, "validation": False,
           "looks": looks, "final": looks[-1], "lags": {"0": len(looks)}, "pushes": 0, "lost": 0,
           "stopped": 0, "epochs": arguments.epochs or task.epochs, "pace": arguments.pace,
           "of_pace": of_pace, "committed": min(steps for _, steps, _ in ends)}
    with open(arguments.json, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    final = row["final"]
    accuracy = "" if final["accuracy"] is None else f"{100 * final['accuracy']:.2f} %, "
    print(f"{name} {arguments.scenario} {arguments.optimizer} rate {arguments.rate:g} seed {arguments.seed}: "
          f"{accuracy}loss {final['loss']:.4f} after {final['seconds']:.1f} s, {len(looks)} rounds, "
          f"{row['committed']} committed, steps {of_pace:.2f} of their pace", flush=True)


if __name__ == "__main__":
    main()
