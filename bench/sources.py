"""The measurements: each class runs programs and returns samples.

A sample is a dict with the parameters (case, size, workers, servers, transport, encoding, variant) and the figures
(gbps, cpu_s_per_gb, p50_us, p99_us, rss_mb, ...). gbps is GB/s, 1e9 bytes of float32 payload per second. Raises Skipped
with one sentence if a measurement is not possible.
"""

import json
import os
import signal
import subprocess
import tempfile

from sizes import MIB

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "bazel-bin")


class Skipped(Exception):
    """The reason why a measurement was skipped."""


class Talker:
    """A program that answers each input line with an output line."""

    def __init__(self, command):
        self.errors = tempfile.TemporaryFile(mode="w+")
        # A separate process group, so that pause() stops only this program and its children. If this script dies while
        # they are paused, the kernel sends the group SIGHUP and SIGCONT.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, process_group=0)

    def pause(self):
        """Stops the program and its children until resume()."""
        self._signal(signal.SIGSTOP)

    def resume(self):
        self._signal(signal.SIGCONT)

    def say(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # hear() finds out why

    def hear(self):
        line = self.process.stdout.readline()
        if line:
            return line.strip()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        raise Skipped(said[0] if said else "a program ended without output")

    def close(self):
        self.resume()
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass  # hear() finds out why


class Ensemble:
    """The servers and workers of one bench/data_plane scenario, kept until close().

    They are stopped between measurements, because each idle process wakes about ten times a second for gRPC's timers,
    and a run uses hundreds of processes.
    """

    def __init__(self, size, workers=1, servers=1, transport="tcp", encoding="float32",
                 variant="", flags=()):
        self.variant = variant
        self.flags = [f"--size={size}", f"--workers={workers}", f"--servers={servers}",
                      f"--transport={transport}", f"--encoding={encoding}", *flags]
        self.talker = None
        self.dead = None

    def start(self, case):
        """Starts the processes for this case. Does nothing if called again."""
        if self.talker or self.dead:
            return
        try:
            self.talker = Talker([os.path.join(BIN, "bench/data_plane/data_plane"),
                                  "--interactive", f"--case={case}", *self.flags])
            self.talker.hear()
            self.talker.pause()
        except Skipped as why:
            self.dead = str(why)

    def measure(self, case, seconds, least=3):
        self.start(case)
        if self.dead:
            raise Skipped(self.dead)
        try:
            self.talker.resume()
            self.talker.say(f"{case} {seconds} {least}")
            sample = json.loads(self.talker.hear())
            self.talker.pause()
        except Skipped as why:
            self.dead = str(why)
            raise
        sample["variant"] = self.variant
        return [sample]

    def close(self):
        if self.talker is not None:
            self.talker.close()
            self.talker = None


class Gloo:
    """Measures all_reduce between two processes; gbps counts the tensor once."""

    RANKS = 2

    def __init__(self):
        self.talkers = []
        self.folder = tempfile.TemporaryDirectory()

    def measure(self, size, seconds, least=3):
        if not self.talkers:
            script = os.path.join(ROOT, "bench/gloo_all_reduce.py")
            rendezvous = os.path.join(self.folder.name, "rendezvous")
            self.talkers = [Talker(["/usr/bin/python3", script, str(rank), str(self.RANKS),
                                    rendezvous]) for rank in range(self.RANKS)]
            for talker in self.talkers:
                talker.hear()
        for talker in self.talkers:
            talker.say(f"{size} {seconds} {least}")
        answers = [json.loads(talker.hear()) for talker in self.talkers]
        mean_s = max(answer["mean_us"] for answer in answers) / 1e6
        gb = size / 1e9
        return [{
            "case": "gloo_all_reduce", "size": size, "workers": self.RANKS, "servers": 0,
            "transport": "tcp", "encoding": "float32", "variant": "", "gbps": gb / mean_s,
            "cpu_s_per_gb": sum(a["cpu_s"] for a in answers) / (answers[0]["operations"] * gb),
            "p50_us": max(answer["p50_us"] for answer in answers),
            "p99_us": max(answer["p99_us"] for answer in answers),
            "operations": answers[0]["operations"],
            "congestion_control": answers[0]["congestion_control"],
        }]

    def close(self):
        for talker in self.talkers:
            talker.close()
        self.folder.cleanup()


def google_benchmark(program, names, seconds):
    """Runs a Google Benchmark program and returns the rows whose names match."""
    command = [os.path.join(BIN, "bench", program), "--benchmark_format=json",
               f"--benchmark_min_time={seconds}", f"--benchmark_filter={names}"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            check=False)
    if result.returncode != 0:
        raise Skipped(f"{program} failed: {result.stderr.strip()[-200:]}")
    if not result.stdout:
        raise Skipped(f"{program} has no row that matches '{names}'")
    return json.loads(result.stdout)["benchmarks"]


class Kernels:
    """Measures the servers' optimizers in memory, compared with an empty loop over the same arrays and with
    torch::optim. gbps counts reads and writes."""

    # Larger than the caches, best instruction set, one and two threads.
    BEST = "^cold/(sgd|sgd_momentum|adam|adamw)/.*/threads:"

    def measure(self, seconds):
        samples = []
        for row in google_benchmark("apply_kernels_benchmark", self.BEST, seconds):
            samples.append({"case": "apply_kernel",
                            "variant": row["name"].replace("/manual_time", ""),
                            "gbps": row["memory"] if "memory" in row else None,
                            "gradient_gbps": row["gradient"] if "gradient" in row else None,
                            "of_limit": row.get("of_limit")})
        for row in google_benchmark("torch_optimizer_benchmark", ".", seconds):
            samples.append({"case": "apply_kernel", "variant": row["name"].split("/")[0],
                            "times_torch": row["of_torch"]})
        return samples

    def close(self):
        pass


class TrainStep:
    """Measures one model's step, alone and as a worker of one server.

    own_core: torch uses core 0, the server core 1. shared: both use both cores.
    """

    PLACES = {"own_core": ("taskset -c 0", "taskset -c 1", 1), "shared": ("", "", 2)}

    def __init__(self, model, batch, steps, warm_up):
        self.flags = [f"--model={model}", f"--batch={batch}", f"--steps={steps}",
                      f"--warm_up={warm_up}"]
        self.model = model

    def measure(self, place):
        worker_prefix, server_prefix, threads = self.PLACES[place]
        flags = self.flags + [f"--threads={threads}"]
        # For the BLAS library, whose threads torch does not count.
        blas = {"OPENBLAS_NUM_THREADS": str(threads)}
        alone = self._run(worker_prefix, flags, blas)
        server = Talker(server_prefix.split() +
                        [os.path.join(BIN, "torchps/ps_server"), "--exit_with_parent"])
        try:
            address = server.hear().split("address=")[1].split()[0]
            worker = self._run(worker_prefix, flags + [f"--servers={address}"], blas)
        finally:
            server.close()
        return [{"case": "train_step", "workers": 1, "servers": servers, "encoding": "float32",
                 "variant": f"{self.model}/{place}/{what}", "p50_us": figures["mean_us"],
                 "median_us": figures["median_us"], "operations": figures["steps"]}
                for what, servers, figures in (("alone", 0, alone), ("worker", 1, worker))]

    def _run(self, prefix, flags, blas):
        result = subprocess.run(prefix.split() + [os.path.join(BIN, "bench/train_step"), *flags],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **blas}, check=False)
        if result.returncode != 0:
            raise Skipped(f"train_step failed: {result.stderr.strip()[-200:]}")
        return json.loads(result.stdout.strip().splitlines()[-1])

    def close(self):
        pass


class Memory:
    """Measures a server's memory while many workers push as fast as they can and the server's apply is slowed down.

    Uses TCP, because shared memory of the workers would count as the server's memory.
    """

    WORKERS = 32
    SIZE = 64 * MIB
    SLOWED = 20

    def measure(self, seconds):
        ensemble = Ensemble(self.SIZE, workers=self.WORKERS, variant=f"slowed {self.SLOWED} times",
                            flags=[f"--server_flags=--slow={self.SLOWED}"])
        try:
            samples = ensemble.measure("push_apply", seconds, least=1)
        finally:
            ensemble.close()
        for sample in samples:
            sample["case"] = "memory"
            sample["ceiling_mb"] = (1.1 * self.SIZE + 96 * MIB) / 1e6
            sample["seconds"] = seconds
        return samples

    def close(self):
        pass
