"""Compares the algorithms of bench/convergence with torch.optim and with one process, and tests their guarantees."""

import argparse
import collections
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bench/convergence"))
import balance  # noqa: E402  the path comes first
import contestants  # noqa: E402
import ddp  # noqa: E402
import drawn_text  # noqa: E402
import optimizers  # noqa: E402
import real  # noqa: E402
import reclock  # noqa: E402
import samples  # noqa: E402
import scenarios  # noqa: E402
import standstills  # noqa: E402
import summary  # noqa: E402
import tasks  # noqa: E402
from rounds import Rounds  # noqa: E402
from rows_file import read  # noqa: E402
from whole_batch import WholeBatch  # noqa: E402

torch.set_num_threads(1)
SCENARIOS = scenarios.all_of()


def small_task(epochs=2, rows=480):
    task = tasks.make("regression", "", samples=rows)
    task.epochs, task.warmup_steps = epochs, 0
    return task


def small_task_with_warm_up():
    task = tasks.make("regression", "", samples=480)
    task.epochs = 2
    return task


def training(name, scenario="none", optimizer="sgd", rate=0.01, task=None, workers=None, **changes):
    contestant = dataclasses.replace(contestants.ALL[name], **changes)
    place = SCENARIOS[scenario]
    if workers:
        place = dataclasses.replace(place, workers=workers)
    kind = Rounds if contestant.rounds else WholeBatch
    return kind(task or small_task(), contestant, place, optimizer, rate, seed=1, looks_per_epoch=1)


def torch_values(run, optimizer, batches):
    """Trains on these batches with a torch optimizer in one process, by the run's schedule."""
    values = torch.nn.Parameter(run.model.initial.clone())
    stepper = optimizer(values)
    for indices, progress in batches:
        values.grad = run.model.gradient(values.detach(), indices)
        stepper.param_groups[0]["lr"] = run.server.rate(progress)
        stepper.step()
    return values.detach()


class Recorded:
    """Records the batches of a run's workers in the order of computation."""

    def __init__(self, run):
        self.batches = []
        inner = run.vector

        def vector(work):
            self.batches += work.batches
            return inner(work)
        run.vector = vector


class OneWorkerTest(unittest.TestCase):

    def expect_equal(self, run, optimizer):
        recorded = Recorded(run)
        run.run()
        expected = torch_values(run, optimizer, recorded.batches)
        self.assertGreater(len(recorded.batches), 25)
        self.assertLess((run.server.values - expected).abs().max().item(), 1e-6)

    def test_one_process_equals_torch_sgd(self):
        task = small_task()
        task.weight_decay = 0.1
        self.expect_equal(training("one_process", task=task), lambda values: torch.optim.SGD(
            [values], lr=1, momentum=0.9, weight_decay=0.1))

    def test_adam_and_adamw_equal_torch(self):
        for decoupled, kind in ((False, torch.optim.Adam), (True, torch.optim.AdamW)):
            task = small_task()
            task.weight_decay, task.decoupled = 0.1, decoupled
            self.expect_equal(training("one_process", optimizer="adam", task=task),
                              lambda values, kind=kind: kind([values], lr=1, weight_decay=0.1))

    def test_one_local_sgd_step_equals_a_gradient_push(self):
        run = training("local_32", workers=1, local_steps=1)
        run.server.optimizer = optimizers.Sgd()
        for learner in run.learners:
            learner.inner = optimizers.Sgd()
        recorded = Recorded(run)
        run.run()
        outer = 0.7

        class Scaled(torch.optim.SGD):

            def step(self):
                self.param_groups[0]["lr"] *= outer
                super().step()
        expected = torch_values(run, lambda values: Scaled([values], lr=1), recorded.batches)
        self.assertLess((run.server.values - expected).abs().max().item(), 1e-6)


class RoundsTest(unittest.TestCase):

    def test_balanced_equals_one_process_with_whole_batch(self):
        run = training("sync_balanced", "one_slow")
        rounds = collections.defaultdict(list)
        inner = run.vector

        def vector(work):
            rounds[work.version].append(work.batches[0])
            return inner(work)
        run.vector = vector
        run.run()
        sizes = [sorted(len(indices) for indices, _ in batches) for batches in rounds.values()]
        self.assertIn([11, 42, 43], sizes)
        big = [(sum((list(indices) for indices, _ in batches), []), min(part for _, part in batches))
               for batches in rounds.values()]
        expected = torch_values(run, lambda values: torch.optim.SGD([values], lr=1, momentum=0.9), big)
        self.assertLess((run.server.values - expected).abs().max().item(), 1e-6)

    def test_ddp_equals_sync_with_equal_workers(self):
        ddp, sync = training("ddp"), training("sync_balanced", balance=False)
        ddp.run()
        sync.run()
        self.assertTrue(torch.equal(ddp.server.values, sync.server.values))

    def test_slow_worker_slows_ddp_but_not_balanced_rounds(self):
        def seconds(name, scenario):
            return training(name, scenario, task=small_task(epochs=10)).run()["final"]["seconds"]
        self.assertAlmostEqual(seconds("ddp", "one_slow") / seconds("ddp", "none"), 4, delta=0.2)
        self.assertLess(seconds("sync_balanced", "one_slow") / seconds("ddp", "none"), 1.6)
        self.assertLess(seconds("ddp_by_hand", "one_slow") / seconds("ddp", "none"), 1.4)

    def test_only_rounds_with_grace_lose_samples(self):
        self.assertEqual(training("sync_balanced", "one_slow").run()["lost"], 0)
        # With equal batches, the slow worker is late in each round.
        run = training("sync_balanced_half_grace", "one_slow", task=small_task(epochs=10), balance=False)
        row = run.run()
        self.assertGreater(row["lost"], 0)
        self.assertEqual(row["final"]["samples"], run.pool.total)

    def test_measures_the_speed_of_late_workers(self):
        for grace in (0.1, 0.5):
            with self.subTest(grace=grace):
                run = training("sync_balanced_half_grace", "one_slow", task=small_task(epochs=10), grace_part=grace)
                row = run.run()
                sizes = [run.balance.batch(worker, [0, 1, 2], "after", run.whole) for worker in range(3)]
                self.assertAlmostEqual(sizes[2], 11, delta=2)
                self.assertLess(row["lost"], 0.1 * run.pool.total)

    def test_equal_workers_finish_within_half_grace(self):
        row = training("sync_balanced_half_grace").run()
        self.assertEqual((row["lost"], row["stopped"]), (0, 0))
        self.assertEqual(row["final"], training("sync_balanced").run()["final"])

    def test_lagging_worker_gets_no_grace(self):
        run = training("sync_balanced_half_grace", "dies", task=small_task(epochs=10), grace_part=20.0)
        graces, inner = [], run._grace

        def grace():
            graces.append(inner())
            return graces[-1]
        run._grace = grace
        row = run.run()
        self.assertEqual(row["final"]["samples"], run.pool.total)
        # The round in which the worker dies waits for it; later rounds do not.
        self.assertIn(0, graces)
        self.assertGreater(max(graces), 0)

    def test_worker_finishes_after_three_consecutive_stops(self):
        run = training("sync_balanced_half_grace", "one_slow", task=small_task(epochs=10), balance=False)
        stops, inner = [], run.stop_time

        def stop_time(work):
            stops.append(run.stops[work.worker])
            return inner(work)
        run.stop_time = stop_time
        row = run.run()
        self.assertEqual(max(stops), 3)
        self.assertGreater(row["stopped"], 3)
        self.assertGreater(row["lost"], 0)


class WholeBatchTest(unittest.TestCase):

    def learnt(self, name, scenario="none", optimizer="sgd", workers=3, rows=470, epochs=3):
        task = small_task(epochs, rows)
        task.global_batch = True
        return training(name, scenario, optimizer, task=task, workers=workers)

    def expect_close(self, run, other):
        run.run()
        other.run()
        self.assertEqual(run.server.version, other.server.version)
        self.assertLess((run.server.values - other.server.values).abs().max().item(), 1e-5)

    def test_one_worker_equals_one_process(self):
        for optimizer in ("sgd", "adam"):
            run = self.learnt("async_batch", optimizer=optimizer, workers=1)
            self.assertNotEqual(run.pool.total % 32, 0)  # the last batch is short
            self.expect_close(run, self.learnt("one_process", optimizer=optimizer))

    def test_equal_workers_match_sync_and_one_process(self):
        for optimizer in ("sgd", "adam"):
            for name in ("sync_balanced", "one_process"):
                self.expect_close(self.learnt("async_batch", optimizer=optimizer),
                                  self.learnt(name, optimizer=optimizer))

    def test_lag_is_bounded_and_samples_are_complete(self):
        for scenario in ("one_slow", "two_of_eight_slow", "pauses", "flaky", "changing", "dies"):
            for name in ("async_batch", "buf"):
                with self.subTest(scenario=scenario, contestant=name):
                    run = self.learnt(name, scenario, workers=SCENARIOS[scenario].workers, rows=2000, epochs=4)
                    used, versions = collections.Counter(), []
                    inner, apply = run._arrive, run.server.apply

                    def arrive(work, vector, run=run, inner=inner, used=used):
                        if run.server.version - work.version <= 1:
                            used.update(work.batches[0][0].tolist())
                        inner(work, vector)

                    def applied(gradient, progress, run=run, apply=apply, versions=versions):
                        versions.append(run.server.version)
                        apply(gradient, progress)
                    run._arrive, run.server.apply = arrive, applied
                    row = run.run()
                    self.assertLessEqual(max(row["lags"]), 1)
                    self.assertEqual(set(used.values()), {4})
                    self.assertEqual(len(used), 2000)
                    self.assertEqual((row["final"]["samples"], row["updates"]), (8000, len(versions)))

    def test_stalled_workers_cause_early_scaled_updates(self):
        run = self.learnt("async_batch", "flaky", rows=3200, epochs=5)
        factors, inner = [], run.server.apply

        def apply(gradient, progress):
            factors.append((gradient / (run.sum / run.count)).nanmedian().item())
            self.assertAlmostEqual(factors[-1], 1 if run.count >= 31 or not run.pool.left() else run.count / 32, 4)
            inner(gradient, progress)
        run.server.apply = apply
        row = run.run()
        self.assertEqual(row["early"], sum(factor < 0.96 for factor in factors))
        self.assertTrue(5 < row["early"] < 0.2 * row["updates"], row["early"])
        self.assertLess(row["lost"], 0.03 * run.pool.total)
        ddp = self.learnt("ddp", "flaky", rows=3200, epochs=5).run()
        self.assertLess(row["final"]["seconds"], 0.9 * ddp["final"]["seconds"])

    def test_waits_are_bounded_after_half_a_batch(self):
        run = self.learnt("async_batch", "pauses", rows=3200, epochs=5)
        waits, inner = [], run._update

        def update(**more):
            if run.count >= 16:
                waits.extend(run.events.now - began for began in run.waiting.values())
            inner(**more)
        run._update = update
        run.run()
        # A turn lasts 50 ms plus two calls, and randomly up to 5 % more. During a pause, shares grow by half.
        self.assertLess(max(waits), 1.5 * 0.056)

    def test_without_waiting_two_thirds_of_pushes_lag(self):
        row = self.learnt("buf", rows=3200).run()
        self.assertAlmostEqual(row["lags"][1] / row["pushes"], 2 / 3, delta=0.05)
        self.assertEqual(row["waited"], 0)


class EveryContestantTest(unittest.TestCase):

    def test_uses_each_sample_once_per_epoch(self):
        for scenario in SCENARIOS:
            for name in contestants.ALL:
                with self.subTest(scenario=scenario, contestant=name):
                    run = training(name, scenario)
                    used = collections.Counter()
                    inner = run.record.counted
                    run.record.counted = lambda count, *more, u=used, i=inner: (u.update(n=count),
                                                                             i(count, *more))
                    run.run()
                    self.assertEqual(used["n"], run.pool.total)

    def test_is_deterministic(self):
        for name in ("sync_balanced", "async_batch"):
            self.assertEqual(training(name, "changing").run(), training(name, "changing").run())


class ClockTest(unittest.TestCase):

    def test_clock_is_the_same_without_learning(self):
        def ended(learns):
            task = small_task()
            task.learns = learns
            run = training("async_batch", "changing", task=task)
            row = run.run()
            row.update(moved=not torch.equal(run.server.values, run.model.initial))
            return row
        with_it, without = ended(True), ended(False)
        self.assertEqual((with_it["moved"], without["moved"]), (True, False))
        for name in ("pushes", "lags", "lost", "stopped"):
            self.assertEqual(with_it[name], without[name])
        self.assertEqual(with_it["final"]["seconds"], without["final"]["seconds"])


class ReclockTest(unittest.TestCase):

    def row(self, name, scenario, task):
        told = {"task": "regression", "samples": 480, "workers": 3, "optimizer": "sgd", "scenario": scenario,
                "contestant": name, "rate": 0.01, "seed": 1, "epochs": task.epochs}
        return told, dict(told, **training(name, scenario, task=task).run())

    def reclocked(self, told, row):
        nothing = small_task(epochs=4)
        nothing.learns = False
        return reclock.row_from(nothing, told, [row], SCENARIOS, looks=1)

    def test_same_rounds_learn_the_same_on_another_clock(self):
        task = small_task(epochs=4)
        _, learnt = self.row("ddp", "none", task)
        for scenario in ("one_slow", "pauses", "dies"):
            told, expected = self.row("ddp", scenario, task)
            found = self.reclocked(told, learnt)
            self.assertEqual(found["learnt_in"], ["ddp", "none"])
            for look, other in zip(found["looks"], expected["looks"]):
                self.assertEqual((look["seconds"], look["samples"]), (other["seconds"], other["samples"]))
                self.assertAlmostEqual(look["loss"], other["loss"], delta=1e-6)

    def test_other_batches_are_not_reclocked(self):
        task = small_task(epochs=4)
        _, learnt = self.row("ddp", "none", task)
        self.assertIsNone(self.reclocked(self.row("sync_balanced", "one_slow", task)[0], learnt))


class ScenarioTest(unittest.TestCase):

    def test_pause_delays_overlapping_work(self):
        pauses = SCENARIOS["pauses"]
        self.assertAlmostEqual(pauses.end(0, 7.5, 1.0, seed=1), 10.5)
        self.assertAlmostEqual(pauses.end(0, 9.0, 1.0, seed=1), 11.0)
        self.assertAlmostEqual(pauses.end(1, 7.5, 1.0, seed=1), 8.5)
        self.assertAlmostEqual(pauses.end(0, 0, 17.0, seed=1), 21.0)

    def test_link_transfer_time(self):
        self.assertAlmostEqual(SCENARIOS["link"].transfer(12_500_000), 1.001)


class DrawnTextTest(unittest.TestCase):

    def test_equals_the_text_of_torchps(self):
        text = drawn_text.drawn_text(10_000, seed=1)
        value = 0xcbf29ce484222325
        for byte in len(text).to_bytes(8, "little") + text:
            value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
        # Same value as in tests/data/text/generated_text_test.cc
        self.assertEqual(value, 0xfed184b3a806c3ec)


class SamplesTest(unittest.TestCase):

    def test_returned_samples_are_handed_out_first(self):
        pool = samples.SamplePool(10, 2, seed=1)
        first, progress = pool.take(4)
        self.assertEqual(progress, 0)
        pool.give_back(first)
        self.assertEqual(list(pool.take(3)[0]), list(first[:3]))
        self.assertEqual(list(pool.take(3)[0]), list(first[3:]))
        self.assertEqual(pool.left(), 16)


class BalanceTest(unittest.TestCase):

    def test_moves_a_quarter_toward_the_target_share(self):
        balanced = balance.Balance(3, 32)
        for _ in range(30):
            for worker, seconds in ((0, 1.0), (1, 1.0), (2, 4.0)):
                balanced.measured(worker, 32, seconds)
        sizes = [[balanced.batch(worker, [0, 1, 2], turn, 96) for worker in range(3)] for turn in range(6)]
        self.assertEqual(sizes[0], [37, 37, 22])
        self.assertEqual(sizes[-1], [43, 42, 11])
        self.assertEqual({sum(each) for each in sizes}, {96})

    def test_stays_within_the_bounds(self):
        balanced = balance.Balance(2, 32)
        for turn in range(30):
            balanced.measured(0, 32, 1.0)
            balanced.measured(1, 32, 1000.0)
            sizes = [balanced.batch(worker, [0, 1], turn, 64) for worker in range(2)]
        self.assertEqual(sizes, [60, 4])

    def test_by_hand_keeps_the_whole_batch(self):
        self.assertEqual(balance.by_hand([1, 1, 0.25], 32), [43, 43, 10])


def row(contestant, seed, seconds, accuracies):
    looks = [{"seconds": second, "samples": 100 * (i + 1), "bytes": 10 * (i + 1), "loss": 1.0,
              "accuracy": accuracy} for i, (second, accuracy) in enumerate(zip(seconds, accuracies))]
    return {"task": "convnet", "samples": 100, "workers": 3, "optimizer": "adam", "scenario": "none",
            "contestant": contestant, "rate": 0.1, "seed": seed, "looks": looks,
            "final": looks[-1], "pushes": 3, "lags": {"0": 3}, "lost": 0, "stopped": 0, "epochs": 3}


class SummaryTest(unittest.TestCase):

    def test_to_target_counts_seeds_that_never_reach_it(self):
        rows = [row("ddp", 1, (1, 2, 3), (0.9, 0.95, 0.97)), row("ddp", 2, (1, 2, 4), (0.9, 0.91, 0.92))]
        met = summary.to_target(rows, 0.95, "seconds")
        self.assertEqual((met.median, met.low, met.high, met.never), (2, 2, 2, 1))
        self.assertIsNone(summary.to_target(rows, 0.99, "seconds").median)

    def test_at_time_uses_the_last_earlier_look(self):
        self.assertEqual(summary.at_time(row("ddp", 1, (1, 2, 3), (0.9, 0.95, 0.97)), 2.5), 0.95)


class RealTest(unittest.TestCase):

    def test_ddp_over_gloo_equals_virtual_ddp(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.jsonl")
            subprocess.run(["/usr/bin/python3", ddp.__file__, "--task=regression", "--samples=480",
                            "--epochs=2", "--workers=2", "--optimizer=sgd", "--rate=0.01", "--slow=1:4",
                            "--by_hand", f"--json={path}"], check=True)
            found, = read(path)
        run = training("ddp_by_hand", "one_slow", workers=2, task=small_task_with_warm_up())
        run._by_hand = balance.by_hand([1, 1 / 4], 32)
        self.assertAlmostEqual(found["final"]["loss"], run.run()["final"]["loss"], delta=1e-5)

    def test_detects_steps_slower_than_the_pace(self):
        slots = [{"slot": 0, "samples": 320, "seconds": {"compute": 0.5}},
                 {"slot": 2, "samples": 320, "seconds": {"compute": 2.2}}]
        arguments = argparse.Namespace(pace=50, epochs=0)
        self.assertAlmostEqual(real.of_pace({"slots": slots}, arguments, "one_slow", seed=1), 1.1)
        # Slot 0 stands still in "pauses", so only slot 2, which is not slow there, counts.
        self.assertAlmostEqual(real.of_pace({"slots": slots}, arguments, "pauses", seed=1), 4.4)

    def test_processes_stand_still_when_the_virtual_clock_says_so(self):
        stop, go_on = signal.SIGSTOP, signal.SIGCONT
        self.assertEqual(standstills.changes("pauses", 3, seed=1, fastest=26)[:3],
                         [(8, 0, stop), (10, 0, go_on), (18, 0, stop)])
        self.assertEqual(standstills.changes("dies", 3, seed=1, fastest=26), [(13, 2, stop), (23, 2, go_on)])
        self.assertEqual(standstills.changes("none", 3, seed=1, fastest=26), [])
        flaky = standstills.changes("flaky", 3, seed=1, fastest=26)
        self.assertEqual(flaky, sorted(flaky))
        stopped = sum(end[0] - begin[0] for worker in range(3)
                      for begin, end in zip(*[iter([c for c in flaky if c[1] == worker])] * 2))
        self.assertAlmostEqual(stopped / 3 / 10000, 1 / 8, delta=0.01)


if __name__ == "__main__":
    unittest.main()
