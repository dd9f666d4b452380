#!/usr/bin/env python3
"""Measures start, checkpoint and recovery times of a large job that is killed as a whole.

  large_job.py [--mib=8192] [--servers=4] [--dir=DIR]

Runs a perceptron under `psctl run`. Its values and Adam moments are --mib MiB of state on the servers. When a
checkpoint is complete, kills all servers and workers (kill -9), and psctl restarts them. When the job trains again,
kills everything including psctl, and resumes with `psctl run --resume`. Beyond the servers' state, the worker needs
memory for values, a gradient and data in transit, and the disk needs room for two checkpoints and the next one. psctl
keeps the servers' files below --dir.

Prints a line for each step, and a verdict. Exits 1 if the job did not recover.
"""

import argparse
import contextlib
import glob
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PIXELS, CLASSES = 784, 10
# A value and Adam's two moments.
BYTES_PER_PARAMETER = 12
JOB = """
name: "large" workers: 1
model {{ name: "mlp" hidden: {width} hidden: {width} }}
data {{ source: "digits" train_samples: 1000 test_samples: 100 }}
training {{ epochs: 1000000 batch_size: 8 evaluate: false }}
optimizer {{ adam {{}} learning_rate: 1e-6 }}
consistency {{ mode: ASYNC prefetch: false }}
durability {{ level: CHECKPOINT checkpoint_seconds: {seconds} keep: 1 }}
"""


def width_of(mib):
    """Returns the width of two hidden layers with `mib` MiB of state: w * w + w * (pixels + classes) parameters."""
    parameters = mib * 2**20 / BYTES_PER_PARAMETER
    half = (PIXELS + CLASSES) / 2
    return int(math.sqrt(parameters + half * half) - half)


class Run:
    """Runs `psctl run`, prints its output and finds its child processes."""

    def __init__(self, arguments, job, *flags):
        command = [os.path.join(arguments.bin, "torchps/psctl"), "run", f"--job={job}", f"--servers={arguments.servers}",
                   "--workers=1", f"--dir={arguments.dir}", "--patience=10m",
                   f"--server_binary={arguments.bin}/torchps/ps_server",
                   f"--worker_binary={arguments.bin}/torchps/ps_worker", *flags]
        self.patience = arguments.patience
        self.began = time.monotonic()
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.most = 0  # peak memory of the processes together, in bytes
        threading.Thread(target=self._echo, daemon=True).start()

    def _echo(self):
        for line in self.child.stdout:
            print(f"  {line}", end="", flush=True)

    def below(self):
        """Returns (name, process id) of the child processes."""
        found = []
        for folder in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{int(folder)}/stat", encoding="utf-8") as file:
                    text = file.read()
                if int(text.rsplit(")", 1)[1].split()[1]) == self.child.pid:
                    found.append((text[text.index("(") + 1:text.rindex(")")], int(folder)))
        return found

    def await_that(self, what, holds):
        """Waits until `holds()` returns true. Returns the seconds."""
        began = time.monotonic()
        while not holds():
            if self.child.poll() is not None:
                sys.exit(f"large_job.py: psctl ended with {self.child.returncode} before {what}")
            if time.monotonic() - began > self.patience:
                self.child.kill()
                sys.exit(f"large_job.py: {what}: took longer than {self.patience:.0f} s")
            self.most = max(self.most, sum(rss_of(process) for _, process in self.below()))
            time.sleep(0.1)
        seconds = time.monotonic() - began
        print(f"{what}: {seconds:.1f} s", flush=True)
        return seconds

    def kill_below(self):
        killed = self.below()
        for _, process in killed:
            os.kill(process, signal.SIGKILL)
        print(f"kill -9: {' '.join(sorted(name for name, _ in killed))}", flush=True)


def rss_of(process):
    with contextlib.suppress(OSError):
        with open(f"/proc/{process}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class Log:
    """Searches the part of the worker's log that was written after the last forget()."""

    def __init__(self, path):
        self.path, self.seen = path, 0

    def forget(self):
        with contextlib.suppress(OSError):
            self.seen = os.path.getsize(self.path)

    def progresses(self):
        with contextlib.suppress(OSError):
            with open(self.path, encoding="utf-8") as file:
                file.seek(self.seen)
                return re.search(r"progress slot=\d+ .*samples_per_s=", file.read()) is not None
        return False


def checkpoints(folder):
    """Returns the numbers of the complete checkpoints."""
    manifests = glob.glob(os.path.join(folder, "state", "checkpoint-*", "MANIFEST.json"))
    return {int(os.path.dirname(path).rsplit("-", 1)[1]) for path in manifests}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=8192, help="MiB of state: values and optimizer")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--checkpoint_seconds", type=float, default=30)
    parser.add_argument("--patience", type=float, default=1800, help="seconds, for each step")
    parser.add_argument("--bin", default=os.path.join(ROOT, "bazel-bin"))
    parser.add_argument("--dir", default="", help="a new folder for the run; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="large-job-") as folder:
        arguments.dir = arguments.dir or os.path.join(folder, "run")
        job = os.path.join(folder, "job.textproto")
        width = width_of(arguments.mib)
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(width=width, seconds=arguments.checkpoint_seconds))
        print(f"{arguments.mib:.0f} MiB of state over {arguments.servers} servers: two hidden layers of {width}")
        log = Log(os.path.join(arguments.dir, "logs", "worker-0.log"))
        run = Run(arguments, job)
        try:
            start = run.await_that("start, until training", log.progresses)
            first = run.await_that("first checkpoint, after the start", lambda: checkpoints(arguments.dir))
            log.forget()
            run.kill_below()
            back = run.await_that("recovery of servers and worker, until training", log.progresses)
            had = max(checkpoints(arguments.dir))
            run.await_that("next checkpoint", lambda: max(checkpoints(arguments.dir), default=0) > had)
            log.forget()
            run.child.kill()
            run.child.wait()
            most = run.most
            run = Run(arguments, job, "--resume")
            resumed = run.await_that("recovery of everything by psctl run --resume, until training", log.progresses)
            most = max(most, run.most)
        finally:
            run.child.terminate()
            run.child.wait()
    print(f"verdict: recovered twice; start {start:.1f} s, first checkpoint {first:.1f} s later, recovery after "
          f"kill -9 of servers and worker {back:.1f} s, of all {resumed:.1f} s; at most {most / 2**30:.1f} GiB of memory")


if __name__ == "__main__":
    main()
