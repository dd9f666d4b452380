#!/usr/bin/python3
"""Local steps on a link that is too slow for every step's gradient. Needs root, and a quiet machine.

  slow_link.py --data=DIR [--mbit=100] [--epochs=15] [--seeds=1] --json=link.jsonl

Two servers in one network namespace, three workers in another, a link of so many Mbit/s between them for all
of them together (bench/link.py). A perceptron on MNIST, whose gradient takes the link longer than a worker to
compute. For each contestant: seconds from the job's start to its end, bytes over the link, and what the last
evaluation found.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from link import Link  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SERVERS, WORKERS, PORT = 2, 3, 7000
JOB = """
name: "link" workers: 3 seed: {seed}
model {{ name: "mlp" hidden: 128 }}
data {{ source: "idx" }}
training {{ epochs: {epochs} batch_size: 32 global_batch: false }}
"""
SCHEDULE = "schedule { shape: COSINE warmup_steps: 20 }"
# The inner rate is the one that SYNC takes.
LOCAL_32 = f"consistency {{ mode: SYNC }} local {{ steps: 32 inner {{ adam {{}} learning_rate: 3e-3 {SCHEDULE} }} }}"
CONTESTANTS = {
    "async_float32": "consistency { mode: ASYNC apply: EACH_PUSH } "
                     f"optimizer {{ adam {{}} learning_rate: 1e-3 {SCHEDULE} }}",
    "sync": "consistency { mode: SYNC } "
            f"optimizer {{ adam {{}} learning_rate: 3e-3 {SCHEDULE} }}",
    # Plain averaging: the outer step takes the mean of what the workers have come to.
    "local_32": f"{LOCAL_32} optimizer {{ sgd {{}} learning_rate: 1 }}",
    # DiLoCo's outer optimizer as published.
    "local_32_nesterov": f"{LOCAL_32} optimizer {{ sgd {{ momentum: 0.9 nesterov: true }} learning_rate: 0.7 }}",
}
LINE = re.compile(r"torchps_worker evaluation slot=\d+ epoch=(\d+) loss=(\S+) accuracy=(\S+)")


def measure(arguments, name, seed):
    link = Link(arguments.mbit / 1000, 0)
    with contextlib.ExitStack() as stack:
        stack.callback(link.close)
        link.flags()
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        job = os.path.join(folder, "job.textproto")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(seed=seed, epochs=arguments.epochs) + CONTESTANTS[name])

        def start(end, program, *flags):
            process = subprocess.Popen(
                ["ip", "netns", "exec", link.ends[end], os.path.join(arguments.bin, program), *flags],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            stack.callback(process.kill)
            return process

        addresses = [f"{link.hosts['s']}:{PORT + server}" for server in range(SERVERS)]
        for address in addresses:
            server = start("s", "ps_server", f"--listen={address}", "--insecure", "--exit_with_parent")
            server.stdout.readline()
        before = carried(link)
        workers = [start("w", "ps_worker", f"--servers={','.join(addresses)}", f"--job={job}",
                         f"--slot={slot}", f"--data={arguments.data}", "--threads=1")
                   for slot in range(WORKERS)]
        said = [worker.communicate()[0] for worker in workers]
        if any(worker.returncode for worker in workers):
            sys.exit("\n".join(said))
        path = os.path.join(folder, "report.json")
        start("s", "psctl", "report", f"--servers={','.join(addresses)}", f"--report={path}").communicate()
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        evaluations = sorted((int(epoch), float(loss), float(accuracy))
                             for text in said for epoch, loss, accuracy in LINE.findall(text))
        epoch, loss, accuracy = evaluations[-1]
        return {"contestant": name, "mbit": arguments.mbit, "seed": seed, "epochs": epoch, "loss": loss,
                "accuracy": accuracy, "seconds": report["wall_seconds"], "bytes": carried(link) - before}


def carried(link):
    """Bytes that have gone over the link, both ways."""
    found = subprocess.run(["ip", "-n", link.ends["s"], "-s", "-j", "link", "show", link.devices["s"]],
                           check=True, capture_output=True, text=True).stdout
    counts = json.loads(found)[0]["stats64"]
    return counts["rx"]["bytes"] + counts["tx"]["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a directory with MNIST as IDX files")
    parser.add_argument("--bin", required=True, help="a directory with ps_server, ps_worker and psctl")
    parser.add_argument("--mbit", type=float, default=100)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 1")
    parser.add_argument("--contestant", default=",".join(CONTESTANTS))
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.contestant.split(","):
            row = measure(arguments, name, seed)
            print(row, flush=True)
            with open(arguments.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
