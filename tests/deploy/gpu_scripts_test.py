"""Tests the scripts of deploy/gpu_test.sh without a GPU."""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.abspath("deploy/gpu"))

import growth  # noqa: E402
import machine  # noqa: E402
import run  # noqa: E402
import speed  # noqa: E402
import stages  # noqa: E402
from runner import Run, Stage  # noqa: E402


class Clock:
    """Clock that advances only when the test sets `now`."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class RunnerTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name
        self.clock = Clock()
        self.said = []

    def run_for(self, seconds, clock=None):
        return Run(self.out, seconds, clock or self.clock, self.said.append)

    def results(self):
        with open(os.path.join(self.out, "gpu.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_counts_checks_and_keeps_figures_by_stage(self):
        def first(its):
            its.check("two is two", True)
            its.check("two is three", 2 == 3, "it is two")
            its.figure("two", 2)

        its = self.run_for(10)
        its.go([Stage("first", first, 5)])
        self.assertEqual(its.counts(), (1, 1))
        results = self.results()
        self.assertEqual(results["figures"], {"first": {"two": 2}})
        self.assertEqual((results["passed"], results["failed"]), (1, 1))
        self.assertIn("  FAILED two is three: it is two", self.said)

    def test_writes_results_after_each_stage(self):
        def second(its):
            self.assertEqual(self.results()["figures"], {"first": {"here": True}})

        its = self.run_for(10)
        its.go([Stage("first", lambda its: its.figure("here", True), 5), Stage("second", second, 5)])
        self.assertEqual(its.counts(), (0, 0))
        self.assertEqual(list(self.results()["stages"]), ["first", "second"])

    def test_writes_results_within_a_stage(self):
        def first(its):
            its.figure("here", True)
            self.assertEqual(self.results()["figures"], {"first": {"here": True}})
            its.check("two is three", False)
            self.assertEqual(self.results()["failed"], 1)

        its = self.run_for(10)
        its.go([Stage("first", first, 5)])
        self.assertEqual(its.counts(), (0, 1))

    def test_sigterm_prints_results_and_ends_child_processes(self):
        children = []

        def stage(its):
            with its.started(["sleep", "1000"]) as process:
                children.append(process)
                its.check("it has begun", True)
                os.kill(os.getpid(), signal.SIGTERM)
                process.wait(timeout=100)

        place = mock.Mock()
        place.stages.return_value = [Stage("first", stage, 1000)]
        place.seconds.return_value = 1000
        os.makedirs(os.path.join(self.out, "bundle"))
        with open(os.path.join(self.out, "bundle", "VERSION.json"), "w", encoding="utf-8") as file:
            json.dump({"commit": "1", "torch": "2", "glibc": "2.2"}, file)
        said = io.StringIO()
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        with mock.patch.object(run, "Place", lambda *_: place), \
                mock.patch.object(sys, "argv", ["run.py", f"--bundle={self.out}/bundle", "--device=cpu",
                                                f"--out={self.out}", "--torch_lib=/lib"]), \
                mock.patch.dict(os.environ), contextlib.redirect_stdout(said), \
                self.assertRaises(SystemExit) as ended:
            run.main()
        self.assertEqual(ended.exception.code, 143)
        self.assertEqual(said.getvalue().splitlines()[-1], "1 passed, 0 failed")
        self.assertEqual(self.results()["passed"], 1)
        self.assertEqual(children[0].returncode, -signal.SIGKILL)

    def test_next_stage_runs_after_an_exception(self):
        def breaks(its):
            raise ValueError("no such thing")

        its = self.run_for(10)
        its.go([Stage("first", breaks, 5), Stage("second", lambda its: its.check("runs", True), 5)])
        self.assertEqual(its.counts(), (1, 1))
        self.assertIn("ValueError: no such thing", self.results()["checks"][0]["why"])

    def test_stage_ends_at_its_limit_or_total_limit(self):
        left = []

        def stage(its):
            left.append(its.left_s())
            self.clock.now += 6

        its = self.run_for(10)
        its.go([Stage("first", stage, 5), Stage("second", stage, 5), Stage("third", stage, 5)])
        self.assertEqual(left, [5, 4])
        self.assertEqual(its.counts(), (0, 1))
        self.assertEqual(self.results()["checks"][0]["what"], "third ends in time")

    def test_hanging_command_ends_with_its_stage(self):
        its = Run(self.out, 1000, say=self.said.append)
        its.go([Stage("hangs", lambda its: its.command(["sleep", "1000"]), 0.1)])
        self.assertEqual(its.counts(), (0, 1))
        self.assertIn("'sleep' had not ended", self.results()["checks"][0]["why"])

    def test_command_limit_does_not_end_the_stage(self):
        ended = []
        its = Run(self.out, 1000, say=self.said.append)
        its.go([Stage("hangs", lambda its: ended.append(its.command(["sleep", "1000"], limit_s=0.1)),
                      1000)])
        self.assertEqual(its.counts(), (0, 0))
        self.assertIsNone(ended[0].code)

    def test_stage_end_kills_grandchildren(self):
        children = []

        def stage(its):
            with its.started(["sh", "-c", "sleep 1000 & echo $!; wait"]) as process:
                children.append(int(process.stdout.readline()))

        self.run_for(10).go([Stage("first", stage, 5)])
        self.expect_ended(children[0])

    def expect_ended(self, pid):
        # The process may still be a zombie that its new parent has not reaped.
        self.assertNotIn("State:\tS", machine.read(f"/proc/{pid}/status"))

    def test_timeout_kills_other_process_groups_holding_pipes(self):
        its = Run(self.out, 1000, say=self.said.append)
        # psctl also starts workers in separate process groups.
        starts = ("import os, time; pid = os.fork()\n"
                  "if pid == 0: os.setpgid(0, 0)\n"
                  "else: print(pid, flush=True)\n"
                  "time.sleep(1000)")
        ended = []

        def stage(its):
            # Starting may be slow on a busy machine.
            for limit_s in (1, 5, 25):
                ended.append(its.command([sys.executable, "-c", starts], limit_s=limit_s))
                if ended[-1].out:
                    break

        began = time.monotonic()
        its.go([Stage("hangs", stage, 1000)])
        self.assertLess(time.monotonic() - began, 200)
        self.assertIsNone(ended[-1].code)
        self.expect_ended(int(ended[-1].out))

    def test_ends_a_program_that_prints_no_line(self):
        lines = []

        def stage(its):
            with its.started(["sleep", "1000"]) as process:
                lines.append(its.first_line(process, limit_s=0.1))
            with its.started(["sh", "-c", "echo ready; sleep 1000"]) as process:
                lines.append(its.first_line(process))

        Run(self.out, 1000, say=self.said.append).go([Stage("first", stage, 1000)])
        self.assertEqual(lines, ["", "ready\n"])

    def test_command_returns_exit_code_and_output(self):
        ended = []
        its = self.run_for(1000)
        its.go([Stage("first", lambda its: ended.append(
            its.command(["sh", "-c", "echo out; echo $WORD >&2; exit 3"], env={"WORD": "error"})),
            1000)])
        self.assertEqual((ended[0].code, ended[0].out, ended[0].error), (3, "out\n", "error\n"))


class StagesTest(unittest.TestCase):

    def test_stages_fit_at_two_thirds_of_their_limits(self):
        on_gpu = stages.Place(".gpu", "cuda").stages()
        self.assertEqual([stage.name for stage in on_gpu],
                         ["facts", "unit", "same", "speed", "train", "encodings", "members",
                          "precision", "faults", "leak"])
        self.assertLess(sum(stage.limit_s for stage in on_gpu) * 2 / 3, 560)

    def test_leak_seconds_extends_the_limits(self):
        for device, usual in (("cuda", 40), ("cpu", 20)):
            place, longer = stages.Place(".gpu", device), stages.Place(".gpu", device, leak_seconds=600)
            self.assertEqual(place.stages()[-1].limit_s, usual + 10)
            self.assertEqual(longer.stages()[-1].limit_s, 610)
            self.assertEqual(longer.seconds(), place.seconds() + 560)

    def test_leak_stage_observes_for_leak_seconds(self):
        clock = Clock()
        looked = []
        worker = mock.Mock(pid=1, returncode=0)
        worker.poll = lambda: None

        def look(pid, on_gpu):
            looked.append(clock.now)
            return {"resident memory": 1 << 20}

        with tempfile.TemporaryDirectory() as out:
            its = Run(out, 10000, clock, say=lambda line: None)
            place = stages.Place(".gpu", "cpu", leak_seconds=600)
            with mock.patch.object(place, "_server", lambda its: contextlib.nullcontext("address")), \
                    mock.patch.object(its, "started", lambda *_, **__: contextlib.nullcontext(worker)), \
                    mock.patch.object(stages, "memory_of", look), \
                    mock.patch.object(stages.time, "sleep",
                                      lambda seconds: setattr(clock, "now", clock.now + seconds)):
                its.go(place.stages()[-1:])
            self.assertEqual(its.counts(), (3, 0))
        self.assertAlmostEqual(looked[-1] - looked[0], 600, delta=5)

    def test_programs_of_a_stage_exit_with_their_parent(self):
        started = []
        process = mock.Mock(pid=1, returncode=0)
        process.stdout.readline = lambda: "torchps_server ready address=127.0.0.1:1 pid=1"

        def start(arguments, **_):
            started.append(arguments)
            return contextlib.nullcontext(process)

        with tempfile.TemporaryDirectory() as out:
            its = Run(out, 100, Clock(), say=lambda line: None)
            its.folder = out
            place = stages.Place(".gpu", "cpu")
            with mock.patch.object(its, "started", start), \
                    mock.patch.object(its, "command", lambda *_: mock.Mock(code=1, said="")):
                place.leak(its)
                place._train_mixed(its, "mixed", "job")
        names = [os.path.basename(arguments[0]) for arguments in started]
        self.assertEqual(sorted(names), 3 * ["ps_server"] + 3 * ["ps_worker"])
        for arguments in started:
            self.assertIn("--exit_with_parent", arguments)

    def test_steady_growth_is_a_leak(self):
        mib = machine.MIB
        leaking = [(250 + i) * mib for i in range(36)]
        one_step = [250 * mib] * 20 + [275 * mib] * 16
        noise = [(250 + i % 2) * mib for i in range(36)]
        late_leak = [250 * mib] * 12 + [(250 + i) * mib for i in range(24)]
        self.assertTrue(growth.keeps_growing(leaking))
        self.assertTrue(growth.keeps_growing(late_leak))
        self.assertFalse(growth.keeps_growing(one_step))
        self.assertFalse(growth.keeps_growing(noise))

    def test_finds_the_device_that_encodes(self):
        said = "worker 0: gradients are encoded as INT8 on cuda:0\nworker 0   done after 250 steps\n"
        self.assertTrue(stages.encodes_on_device(said, "INT8", "cuda"))
        self.assertTrue(stages.encodes_on_device(said, "INT8", "cuda:0"))
        self.assertFalse(stages.encodes_on_device(said, "TOP_K", "cuda"))
        self.assertFalse(stages.encodes_on_device(said, "INT8", "cuda:1"))
        self.assertFalse(stages.encodes_on_device(
            "worker 0: gradients are encoded on the host, not by cuda:0: no NVRTC\n", "INT8", "cuda"))

    def encodings(self, device, says):
        """Returns the checks of the stage by name, if psctl prints `says` for each job."""
        checks = {}
        its = mock.Mock()
        its.check = lambda what, holds, why="": checks.update({what: holds}) or holds
        place = stages.Place(".gpu", device)
        with mock.patch.object(place, "_train", lambda *_, **__: says):
            place.encodings(its)
        return checks

    def test_stage_fails_if_gpu_does_not_encode(self):
        self.assertEqual(self.encodings("cpu", "done"), {})
        self.assertEqual(list(self.encodings("cuda", "done").values()), [False] * 3)
        says = "gradients are encoded as INT8 on cuda:0"
        self.assertEqual(self.encodings("cuda", says),
                         {"digits, BFLOAT16: the GPU encodes": False,
                          "digits, INT8: the GPU encodes": True,
                          "digits, TOP_K: the GPU encodes": False})

    def test_measures_the_memory_of_a_process(self):
        memory = machine.memory_of(os.getpid(), on_gpu=False)
        self.assertEqual(list(memory), ["resident memory"])
        self.assertGreater(memory["resident memory"], 1 << 20)
        self.assertEqual(machine.memory_of(1 << 30, on_gpu=False), {"resident memory": 0})


class SpeedTest(unittest.TestCase):
    """Tests the speed stage: a missed bar is reported without failing; a slower worker fails."""

    CASES = {"net": dict(fails_above=1.5, flags=dict(batch=100))}

    def setUp(self):
        self.said = []
        self.checks = {}
        self.figures = {}
        self.run = mock.Mock()
        self.run.say = self.said.append
        self.run.check = lambda what, holds, why="": self.checks.update({what: holds})
        self.run.figure = lambda name, value: self.figures.update({name: value})

    def judge(self, alone, worker, tcp, cases=None):
        speed.judge(self.run, cases or self.CASES,
                    {("net", place): [1000 * ms for ms in found]
                     for place, found in zip(speed.PLACES, (alone, worker, tcp))})

    def test_accepts_a_step_within_the_bar(self):
        self.judge([10, 11, 10], [10.1, 10.3, 10.3], [20, 20, 20])
        self.assertEqual(self.said, ["net, alone: 10.0 ms",
                                     "net, worker: 10.3 ms, 1.03 of alone; bar 1.03: met",
                                     "net, worker, TCP: 20.0 ms, 2.00 of alone"])
        self.assertEqual(self.checks, {"net: a worker's step takes at most 1.5 of a plain step": True})
        self.assertEqual(self.figures["net, worker"],
                         {"ms": 10.3, "rounds": 3, "samples_per_second": 9708.7, "by_alone": 1.03,
                          "bar": 1.03, "bar_is_met": True})

    def test_missed_bar_is_reported_without_failing(self):
        self.judge([10], [12.9], [20])
        self.assertIn("net, worker: 12.9 ms, 1.29 of alone; bar 1.03: missed", self.said)
        self.assertFalse(self.figures["net, worker"]["bar_is_met"])
        self.assertEqual(list(self.checks.values()), [True])

    def test_slower_worker_fails(self):
        self.judge([10], [15.1], [20])
        self.assertEqual(list(self.checks.values()), [False])

    def test_skips_checks_without_a_comparison(self):
        self.judge([], [15], [20])
        self.assertEqual(self.said, ["net, worker: 15.0 ms", "net, worker, TCP: 20.0 ms"])
        self.judge([10], [99], [], cases={"net": dict(fails_above=None, flags=dict(batch=1))})
        self.assertIn("net, worker: 99.0 ms, 9.90 of alone", self.said)
        self.assertEqual(self.checks, {})

    def test_stores_each_time_at_once(self):
        place = stages.Place(".gpu", "cuda")
        self.run.left_s = lambda: 0
        seen = []

        def time_step(its, name, where, arguments, found):
            seen.append(dict(self.figures))
            found.append(1000 * len(seen))

        with mock.patch.object(place, "_time_step", time_step):
            place.speed(self.run)
        self.assertEqual(len(seen), 9)
        self.assertEqual(seen[2], {"resnet18, batch 128, alone: each, in us": [1000],
                                   "resnet18, batch 128, worker: each, in us": [2000]})

    def test_warm_up_covers_the_prefetch_decision(self):
        for case in {**speed.ON_GPU, **speed.REHEARSED}.values():
            # Equals kStepsBeforeDeciding of torchps/worker/loop/prefetch_policy.h.
            self.assertGreater(case["flags"]["warm_up"], 8)


class RefusalTest(unittest.TestCase):
    """Tests that faults of the setup are reported in one sentence before the stages run."""

    def refusal(self, check, *arguments, **more):
        error = io.StringIO()
        with contextlib.redirect_stderr(error), self.assertRaises(SystemExit) as ended:
            check(*arguments, **more)
        self.assertEqual(ended.exception.code, 2)
        self.assertEqual(error.getvalue().count("\n"), 1)
        return error.getvalue()

    def torch_of(self, version):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.makedirs(os.path.join(folder.name, "torch"))
        with open(os.path.join(folder.name, "torch", "version.py"), "w", encoding="utf-8") as file:
            file.write(f"__version__ = '{version}'\n")
        with open(os.path.join(folder.name, "torch", "__init__.py"), "w", encoding="utf-8"):
            pass
        return mock.patch.object(sys, "path", [folder.name])

    def test_rejects_too_short_leak_seconds(self):
        with mock.patch.object(sys, "argv", ["run.py", "--bundle=b", "--out=o", "--leak_seconds=5"]):
            self.assertIn("--leak_seconds=5: expected at least 10", self.refusal(run.main))

    def test_rejects_a_missing_driver(self):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertIn("no NVIDIA driver answers here", self.refusal(run.check_driver))
        with mock.patch.object(run, "nvidia_smi", lambda what: []):
            self.assertIn("nvidia-smi lists no GPU", self.refusal(run.check_driver))

    def test_rejects_another_torch_version(self):
        with self.torch_of("2.11.0+cu130"):
            self.assertTrue(run.torch_libraries("2.11.0+cu130").endswith("/torch/lib"))
            self.assertIn("the bundle is built for torch 2.12.0+cu130, and",
                          self.refusal(run.torch_libraries, "2.12.0+cu130"))
        with mock.patch.object(sys, "path", []):
            self.assertIn("has no torch", self.refusal(run.torch_libraries, "2.11.0+cu130"))

    def test_rejects_an_old_glibc(self):
        run.check_glibc("2.2.5")
        self.assertIn("the bundle's programs need 99.1", self.refusal(run.check_glibc, "99.1"))

    def test_rejects_missing_and_foreign_libraries(self):
        with tempfile.TemporaryDirectory() as bundle:
            os.makedirs(os.path.join(bundle, "bin"))
            with open(os.path.join(bundle, "bin", "program"), "w", encoding="utf-8"):
                pass
            said = "libm.so.6 => /lib/libm.so.6 (0x1)\n\tlibz.so.1 => /lib/libz.so.1 (0x2)\n"
            with mock.patch.object(run.subprocess, "run", lambda *_, **__: mock.Mock(stdout=said)):
                run.check_libraries(bundle, [bundle], alone=False)
                self.assertIn("program takes libz.so.1 from",
                              self.refusal(run.check_libraries, bundle, [bundle], alone=True))
                run.check_libraries(bundle, ["/lib", os.path.realpath("/lib")], alone=True)
            said = "libz.so.1 => not found\n"
            with mock.patch.object(run.subprocess, "run", lambda *_, **__: mock.Mock(stdout=said)):
                self.assertIn("program cannot be loaded here: libz.so.1 => not found",
                              self.refusal(run.check_libraries, bundle, [bundle], alone=False))


if __name__ == "__main__":
    unittest.main()
