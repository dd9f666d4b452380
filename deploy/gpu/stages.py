"""The stages of deploy/gpu_test.sh on a machine with a GPU, in order.

On the CPU (a rehearsal) the same stages run in smaller sizes, without the parts that need a GPU.
"""

import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

import speed
from growth import WINDOWS, keeps_growing, windows_of
from machine import MIB, gpu_memory_mib, machine_facts, memory_of, nvidia_smi, read
from runner import Stage

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import check_report  # noqa: E402  (of deploy/)


# Default of --leak_seconds on a GPU: how long the worker's memory is observed. Starting and stopping the
# worker and the server takes additional time.
LEAK_S = 40
LEAK_START_AND_END_S = 10
# No program except a drill takes longer on a GPU. The limit stops a hanging program without losing the stage.
COMMAND_S = 45
# Four local steps with the worker's optimizer, then a push of the change to the servers.
LOCAL_STEPS = ["--set=local.steps=4", "--set=local.inner.kind=adam", "--set=local.inner.learning_rate=0.002",
               "--set=optimizer.kind=sgd", "--set=optimizer.learning_rate=1",
               "--set=optimizer.schedule.shape=CONSTANT", "--set=optimizer.schedule.warmup_steps=0",
               "--set=training.epochs=2"]


class Place:
    """The bundle, and the device to test."""

    def __init__(self, bundle, device, leak_seconds=None):
        self.bundle = bundle
        self.device = device
        self.on_gpu = device != "cpu"
        self.leak_seconds = leak_seconds or (LEAK_S if self.on_gpu else 20)
        # On other machines, only the stage's limit applies.
        self.command_s = COMMAND_S if self.on_gpu else None

    def program(self, name):
        return os.path.join(self.bundle, "bin", name)

    def job(self, name):
        return os.path.join(self.bundle, "jobs", name + ".textproto")

    @property
    def mnist(self):
        folder = os.path.join(self.bundle, "data", "mnist")
        return folder if os.path.isdir(folder) else None

    def stages(self):
        # Time limits. The total is shorter than their sum, because most stages need half. The most important
        # stages come first, because a hang or the loss of the machine may prevent later ones.
        leak = self.leak_seconds + LEAK_START_AND_END_S
        limits = ((30, 90, 40, 190, 100, 60, 50, 60, 100, leak) if self.on_gpu else
                  (15, 120, 30, 60, 120, 80, 60, 45, 90, leak))
        names = ("facts", "unit", "same", "speed", "train", "encodings", "members", "precision", "faults",
                 "leak")
        return [Stage(name, getattr(self, name), limit) for name, limit in zip(names, limits)]

    def seconds(self):
        """Returns the default time for all stages: shorter than the limit for a command on a borrowed
        machine, plus any longer leak test."""
        return (560 if self.on_gpu else 480) + max(0, self.leak_seconds - LEAK_S)

    # The stages.

    def facts(self, run):
        """Records the machine, and checks psctl doctor and ps_worker on it."""
        for name, value in machine_facts():
            run.figure(name, value)
        if self.on_gpu:
            said = run.command(["nvidia-smi"])
            run.check("nvidia-smi answers", said.code == 0, said.said)
            for name, value in zip(("gpu", "driver", "gpu_memory_mib"),
                                   nvidia_smi("name,driver_version,memory.total")[0]):
                run.figure(name, value)
        copied = run.command([self.program("device_copy"), f"--device={self.device}"])
        if run.check("pinned copies each way", copied.code == 0, copied.said):
            run.figure("device_copy", json.loads(copied.out))
        seen = run.command([self.program("ps_worker"), "--devices"])
        wanted = self.device if ":" in self.device else self.device + (":0" if self.on_gpu else "")
        run.check(f"ps_worker sees {wanted}", wanted in re.split("[=,\n]", seen.out), seen.said)
        doctor = run.command([self.program("psctl"), "doctor", f"--device={self.device}",
                              f"--job={self.job('convnet_digits')}", f"--dir={run.folder}"])
        run.check("doctor finds no problem", doctor.code == 0, doctor.said)

    def unit(self, run):
        """Runs the tests of the device code; on a GPU none may be skipped."""
        env = {"TORCHPS_REQUIRE_GPU": "1"} if self.on_gpu else {}
        for path in sorted(glob.glob(os.path.join(self.bundle, "bin", "*_test"))):
            name = os.path.basename(path)
            if name == "equivalence_test":  # run by the next stage
                continue
            tested = run.command([path], self.command_s, {**env, "TEST_TMPDIR": run.folder})
            passed = re.search(r"\[  PASSED  \] (\d+) tests?", tested.out)
            skipped = re.search(r"\[  SKIPPED \] (\d+) tests?,", tested.out)
            run.figure(name, {"passed": int(passed.group(1)) if passed else 0,
                              "skipped": int(skipped.group(1)) if skipped else 0})
            failed = re.findall(r"\[  FAILED  \] (\S+?),? ", tested.out)
            run.check(name, tested.code == 0, f"exit code {tested.code}: {' '.join(failed)}")

    def same(self, run):
        """Checks that a worker's steps equal those of a plain loop on the same device."""
        compared = run.command([self.program("equivalence_test"),
                                f"--gtest_filter=Devices/*/{'Gpu' if self.on_gpu else 'Cpu'}"])
        found = re.findall(r"^(.*): relative parameter difference (\S+) after (\d+) steps",
                           compared.out, re.MULTILINE)
        for what, difference, steps in found:
            run.figure(f"{what}, {steps} steps", float(difference))
            run.check(f"{what} after {steps} steps within 1e-5", float(difference) <= 1e-5, difference)
        run.check("one step and a hundred of two models are compared", len(found) == 4,
                  f"{len(found)} comparisons; exit code {compared.code}")

    def train(self, run):
        """Runs whole jobs: one worker, two that share the device, one on the device and one on the CPU."""
        for workers in (1, 2):
            self._train(run, f"digits, {workers} on {self.device}", "convnet_digits", workers)
        self._train_mixed(run, "digits, one on the device and one on the CPU", "convnet_digits")
        if self.mnist:
            for workers in (1, 2) if self.on_gpu else (2,):
                self._train(run, f"MNIST, {workers} on {self.device}", "convnet_mnist", workers,
                            [f"--data={self.mnist}"])
        said = self._train(run, "digits, 4 local steps", "convnet_digits", 1, LOCAL_STEPS, accuracy=0.95)
        if self.on_gpu:
            run.check("digits, 4 local steps: the GPU looks at their difference",
                      "are not computed by torchps's GPU kernels" not in said, said[-2000:])

    def members(self, run):
        """Runs one worker with several members: replicas on two devices (may be the same one twice), and a
        process for each stage of a model."""
        each = self.device + ":0" if self.device == "cuda" else self.device
        self._train(run, "digits, two replicas", "convnet_digits", 1, accuracy=0.97,
                    device=f"{each},{each}")
        self._train(run, "digits, an MLP in two processes", "mlp_digits", 1, ["--stages=2"], accuracy=0.9)

    def encodings(self, run):
        """Checks that each encoding trains as well as float32. Uses TCP, because payloads in shared memory
        are not encoded. Checks that a worker on a GPU encodes there."""
        epochs = ["--set=training.epochs=2", "--set=wire.shared_memory=false"]
        for kind in ("FLOAT32", "BFLOAT16", "INT8", "TOP_K"):
            # A tenth of the elements; otherwise a job of a few hundred steps would end before most are sent.
            more = ["--set=wire.push.fraction=0.1"] if kind == "TOP_K" else []
            said = self._train(run, f"digits, {kind}", "convnet_digits", 1,
                               epochs + [f"--set=wire.push.kind={kind}", *more],
                               accuracy=0.9 if kind == "TOP_K" else 0.95)
            if self.on_gpu and kind != "FLOAT32":
                run.check(f"digits, {kind}: the GPU encodes",
                          encodes_on_device(said, kind, self.device), said[-2000:])

    def precision(self, run):
        """Checks that each precision trains as well as float32, and measures its step time, alone and as a
        worker."""
        if self.on_gpu:
            for precision in ("TF32", "BFLOAT16", "FLOAT16"):
                self._train(run, f"digits, {precision}", "convnet_digits", 1,
                            [f"--set=training.precision={precision}"], accuracy=0.97)
        else:
            self._expect(run, "float16 on the CPU", [
                self.program("ps_worker"), "--local", f"--job={self.job('convnet_digits')}",
                "--device=cpu", "--set=training.precision=FLOAT16"], 2,
                "training.precision is FLOAT16, but device 'cpu' cannot train in it")
        flags = (dict(model="resnet18", batch=128, steps=60, warm_up=20) if self.on_gpu else
                 dict(model="convnet", batch=8, steps=5, warm_up=1))
        for precision in (("FLOAT32", "TF32", "BFLOAT16", "FLOAT16") if self.on_gpu else
                          ("FLOAT32", "BFLOAT16")):
            for place in ("alone", "worker"):
                name = f"{flags['model']}, batch {flags['batch']}, {precision}, {place}"
                found = []
                self._time_step(run, name, place, self._train_step(**flags) +
                                [f"--set=training.precision={precision}"], found)
                if found:
                    run.figure(name, {"ms": round(found[0] / 1000, 3)})

    def faults(self, run):
        """Checks recovery from killed processes, and the error message and exit code of impossible settings.
        """
        # A job that outlasts the drill, even on a fast machine.
        epochs, seconds = (80, 20) if self.on_gpu else (6, 6)
        before = gpu_memory_mib() if self.on_gpu else 0
        report = os.path.join(run.folder, "drill.json")
        drill = run.command(
            [self.program("psctl"), "drill", f"--job={self.job('convnet_digits')}",
             f"--set=training.epochs={epochs}", "--servers=2", "--workers=2",
             f"--device={self.device}", "--kill=server:every=2s", "--kill=worker:every=3s",
             f"--seconds={seconds}", "--seed=7", f"--report={report}"],
            70 if self.on_gpu else None)
        run.check("the job survives kill -9 of servers and workers", drill.code == 0,
                  drill.said[-2000:])
        killed = re.search(r"^killed: (\d+) servers?, (\d+) workers?", drill.out, re.MULTILINE)
        run.figure("killed", killed.group(0) if killed else "")
        run.check("servers and workers were killed",
                  killed and int(killed.group(1)) > 0 and int(killed.group(2)) > 0, drill.out[-500:])
        if self.on_gpu:
            lasted_s = json.loads(read(report) or "{}").get("wall_seconds", 0)
            run.figure("drill_s", lasted_s)
            run.check(f"the job lasts as long as its {seconds} s of faults", lasted_s >= seconds,
                      f"{lasted_s} s")
            run.check("killed workers leave no memory on the GPU",
                      gpu_memory_mib() <= before + 64, f"{before} MiB before, {gpu_memory_mib()} after")
        alone = [self.program("ps_worker"), "--local", f"--job={self.job('convnet_digits')}"]
        # On a machine without a GPU the message differs.
        self._expect(run, "an index that does not exist", alone + ["--device=cuda:99"], 2,
                     "is not there; GPUs seen here:" if self.on_gpu else "CUDA sees no GPU here")
        self._expect(run, "an unknown device", alone + ["--device=gpu"], 2,
                     "device 'gpu' is not known")
        self._expect(run, "no visible GPU", alone + ["--device=cuda"], 2, "CUDA sees no GPU here",
                     {"CUDA_VISIBLE_DEVICES": ""})
        if self.on_gpu:
            with self._server(run) as address:
                self._expect(run, "a batch too large for the GPU's memory",
                             self._train_step(model="resnet18", batch=30000, steps=1, warm_up=0) +
                             [f"--servers={address}"], 1, "out of memory")

    def speed(self, run):
        """Measures a step of a plain loop, and of a worker through shared memory and TCP, alternately."""
        cases = speed.ON_GPU if self.on_gpu else speed.REHEARSED
        times = {(case, place): [] for case in cases for place in speed.PLACES}
        # As many rounds as time allows, at most three.
        longest_s = 0
        try:
            for rounds in range(3):
                if rounds > 0 and run.left_s() < 1.2 * longest_s:
                    break
                began = time.monotonic()
                for (case, place), found in times.items():
                    self._time_step(run, f"{case}, {place}", place,
                                    self._train_step(**cases[case]["flags"]), found)
                    # Recorded at once, in case the run is cut before the evaluation.
                    run.figure(f"{case}, {place}: each, in us", list(found))
                longest_s = max(longest_s, time.monotonic() - began)
        finally:
            # Also evaluates partial results.
            speed.judge(run, cases, times)

    def leak(self, run):
        """Checks that a worker's resident, pinned and GPU memory does not grow during training."""
        with contextlib.ExitStack() as stack:
            address = stack.enter_context(self._server(run))
            worker = stack.enter_context(run.started(
                [self.program("ps_worker"), f"--servers={address}", "--set=workers=1",
                 f"--job={self.job('convnet_digits')}", "--set=training.epochs=1000000",
                 "--set=durability.level=NONE", f"--device={self.device}", "--exit_with_parent"],
                log_file=stack.enter_context(open(os.path.join(run.folder, "worker"), "w"))))
            samples = []
            while run.left_s() > LEAK_START_AND_END_S - 2 and worker.poll() is None:
                samples.append(memory_of(worker.pid, self.on_gpu))
                time.sleep(0.5)
            alive = worker.poll() is None
            worker.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=max(run.left_s() - 2, 1))
        said = read(os.path.join(run.folder, "worker"))
        run.log(said)
        run.check("trains until it is stopped, and ends with 0",
                  alive and worker.returncode == 0, f"exit code {worker.returncode}: {said[-500:]}")
        if not run.check("its memory was sampled", len(samples) >= 2 * WINDOWS,
                         f"{len(samples)} samples"):
            return
        for kind in samples[0]:
            held = [sample[kind] for sample in samples]
            run.figure(kind, {"early_mib": round(windows_of(held)[0] / MIB, 1),
                              "late_mib": round(windows_of(held)[-1] / MIB, 1)})
            run.check(f"{kind} does not grow", not keeps_growing(held),
                      "MiB, one after the other: " +
                      " ".join(f"{window / MIB:.1f}" for window in windows_of(held)))

    # Shared functions.

    def _train(self, run, name, job, workers, more=(), accuracy=0.975, device=None):
        """Runs a whole job and checks that it succeeds and learns. Returns psctl's output."""
        report = os.path.join(run.folder, "report.json")
        trained = run.command(
            [self.program("psctl"), "run", f"--job={self.job(job)}", "--servers=2",
             f"--workers={workers}", f"--device={device or self.device}", f"--report={report}", *more],
            self.command_s)
        if run.check(f"{name}: ends well", trained.code == 0, trained.said[-2000:]):
            self._judge(run, name, report, workers, accuracy)
        return trained.said

    def _train_mixed(self, run, name, job):
        report = os.path.join(run.folder, "mixed.json")
        with contextlib.ExitStack() as stack:
            addresses = [stack.enter_context(self._server(run)) for _ in range(2)]
            servers = f"--servers={','.join(addresses)}"
            log = stack.enter_context(open(os.path.join(run.folder, "mixed"), "w", encoding="utf-8"))
            for slot, device in enumerate((self.device, "cpu")):
                stack.enter_context(run.started(
                    [self.program("ps_worker"), servers, f"--job={self.job(job)}", "--set=workers=2",
                     "--set=durability.level=NONE", f"--slot={slot}", f"--device={device}",
                     "--exit_with_parent"],
                    log_file=log))
            reported = run.command([self.program("psctl"), "report", servers, "--wait",
                                    f"--report={report}"], self.command_s)
        run.log(read(os.path.join(run.folder, "mixed")))
        if run.check(f"{name}: ends well", reported.code == 0, reported.said[-2000:]):
            self._judge(run, name, report, 2, 0.975)

    def _judge(self, run, name, report, workers, accuracy):
        with open(report, encoding="utf-8") as file:
            figures = json.load(file)
        wrong = list(check_report.faults(figures, servers=2, workers=workers, accuracy=accuracy))
        run.check(f"{name}: {accuracy:.1%}, the consistency check passes", not wrong, "; ".join(wrong))
        devices = sorted(slot.get("device", "?") for slot in figures.get("slots", []))
        run.figure(name, {"accuracy": (figures.get("result") or {}).get("accuracy"),
                          "wall_s": figures.get("wall_seconds"),
                          "samples_per_second": figures.get("samples_per_second"),
                          "devices": devices})

    @contextlib.contextmanager
    def _server(self, run):
        """Runs a server; yields the address."""
        with run.started([self.program("ps_server"), "--listen=127.0.0.1:0",
                          "--exit_with_parent"]) as server:
            line = run.first_line(server)
            found = re.search(r"address=(\S+)", line)
            if not found:
                raise RuntimeError(f"ps_server did not get ready: {line or server.stderr.read()}")
            yield found.group(1)

    def _expect(self, run, name, arguments, code, words, env=None):
        ended = run.command(arguments, self.command_s, env)
        run.check(f"{name}: code {code}, and a sentence", ended.code == code and words in ended.error,
                  f"code {ended.code}: {ended.error[-500:]}")

    def _train_step(self, **flags):
        return [self.program("train_step"), f"--device={self.device}", *(
            f"--{name}={value}" for name, value in flags.items())]

    def _time_step(self, run, name, place, arguments, found):
        with contextlib.ExitStack() as stack:
            if place != "alone":
                arguments = arguments + [f"--servers={stack.enter_context(self._server(run))}"]
            if place == "worker, TCP":
                arguments = arguments + ["--set=wire.shared_memory=false"]
            ended = run.command(arguments, self.command_s)
        if run.check(f"{name}: train_step succeeds", ended.code == 0, ended.said[-1000:]):
            found.append(json.loads(ended.out.strip().splitlines()[-1])["mean_us"])


# Program output.


def encodes_on_device(said, kind, device):
    """Returns true if the worker reported that the device encodes the pushes (torchps/worker/slot/worker_slot.cc)."""
    return re.search(rf"gradients are encoded as {kind} on {re.escape(device)}\b", said) is not None
