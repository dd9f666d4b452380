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
                mock.patch.object(sys, "argv", ["run.py", f"--bundle={self.out}/bundle", f"--out={self.out}",
                                                "--rehearse=/lib"]), \
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

    def test_command_returns_exit_code_and_output(self):
        ended = []
        its = self.run_for(1000)
        its.go([Stage("first", lambda its: ended.append(
            its.command(["sh", "-c", "echo out; echo $WORD >&2; exit 3"], env={"WORD": "error"})),
            1000)])
        self.assertEqual((ended[0].code, ended[0].out, ended[0].error), (3, "out\n", "error\n"))


class StagesTest(unittest.TestCase):

    def test_stages_fit_at_two_thirds_of_their_limits(self):
        on_gpu = stages.Place(".gpu").stages()
        self.assertEqual([stage.name for stage in on_gpu],
                         ["facts", "unit", "same", "speed", "train", "encodings", "members",
                          "precision", "faults", "leak"])
        self.assertLess(sum(stage.limit_s for stage in on_gpu) * 2 / 3, 560)

    def test_rehearsal_loads_tests_and_trains(self):
        rehearsed = stages.Place(".gpu", on_gpu=False).stages()
        self.assertEqual([stage.name for stage in rehearsed], ["facts", "unit", "train"])

    def test_leak_seconds_extends_the_limits(self):
        place, longer = stages.Place(".gpu"), stages.Place(".gpu", leak_seconds=600)
        self.assertEqual((place.stages()[-1].limit_s, longer.stages()[-1].limit_s), (50, 610))
        self.assertEqual(longer.seconds(), place.seconds() + 560)

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

    def test_detects_that_the_gpu_encodes(self):
        said = "worker 0: gradients are encoded as INT8 on cuda:0\nworker 0   done after 250 steps\n"
        self.assertTrue(stages.encodes_on_gpu(said, "INT8"))
        self.assertFalse(stages.encodes_on_gpu(said, "TOP_K"))
        self.assertFalse(stages.encodes_on_gpu(
            "worker 0: gradients are encoded on the host, not by cuda:0: no NVRTC\n", "INT8"))

    def test_measures_the_memory_of_a_process(self):
        with mock.patch.object(machine, "gpu_memory_mib", lambda: 3):
            memory = machine.memory_of(os.getpid())
        self.assertGreater(memory["resident memory"], 1 << 20)
        self.assertEqual(memory["the GPU's memory"], 3 << 20)


class SpeedTest(unittest.TestCase):
    """Tests the speed stage: a missed bar is reported without failing; a slower worker fails."""

    def setUp(self):
        self.said = []
        self.run = mock.Mock(say=self.said.append)

    def test_judges_a_step(self):
        cases = {"net": dict(fails_above=1.5, flags=dict(batch=100))}
        for worker, holds, line in (
                ([10.1, 10.3, 10.3], True, "net, worker: 10.3 ms, 1.03 of alone; bar 1.03: met"),
                ([12.9], True, "net, worker: 12.9 ms, 1.29 of alone; bar 1.03: missed"),
                ([15.1], False, "net, worker: 15.1 ms, 1.51 of alone; bar 1.03: missed")):
            with mock.patch.object(speed, "CASES", cases):
                speed.judge(self.run, {("net", "alone"): [10e3], ("net", "worker, TCP"): [],
                                       ("net", "worker"): [1e3 * ms for ms in worker]})
            self.assertEqual(self.said[-2:], ["net, alone: 10.0 ms", line])
            self.assertEqual(self.run.check.call_args[0][1], holds)

    def test_warm_up_covers_the_prefetch_decision(self):
        for case in speed.CASES.values():
            # Equals kStepsBeforeDeciding of worker/loop/prefetch_policy.h.
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
