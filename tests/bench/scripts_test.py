"""In which order a run measures, what it does again and who stands still meanwhile; how samples
become rows, rows verdicts."""

import argparse
import itertools
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bench"))
import plan  # noqa: E402  the path comes first
import rows  # noqa: E402
import run  # noqa: E402
import sizes  # noqa: E402
import sources  # noqa: E402
import tables  # noqa: E402
import verdict  # noqa: E402

MIB = 1 << 20


def sample(case, repetition, gbps, size=16 * MIB, **more):
    return {"case": case, "size": size, "workers": 1, "servers": 1, "transport": "tcp",
            "encoding": "float32", "variant": "", "gbps": gbps, "cpu_s_per_gb": 0.2,
            "p50_us": 1.0, "p99_us": 2.0, "rss_mb": 3.0, "repetition": repetition,
            "throttled": False, **more}


class PlanTest(unittest.TestCase):

    def test_all_that_is_measured_of_one_size_stands_together(self):
        options = argparse.Namespace(case=[], quick=False, all=False, seconds=0.1)
        whole = plan.Plan(options)
        self.addCleanup(whole.close)
        names = [sizes.size_name(size) for size in plan.SIZES]
        found = [name for unit in whole.units for name in names if f" {name}" in unit.label]
        self.assertGreater(len(found), 50)
        self.assertEqual([size for size, _ in itertools.groupby(found)], names)


class TalkerTest(unittest.TestCase):

    def await_state(self, pid, state):
        while True:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == state:
                    return

    def test_who_pauses_stands_still_with_all_that_it_started_and_then_goes_on(self):
        # With something to do after it, the shell waits for cat instead of becoming it.
        talker = sources.Talker(["sh", "-c", "cat; true"])
        talker.say("awake")
        self.assertEqual(talker.hear(), "awake")
        shell = talker.process.pid
        with open(f"/proc/{shell}/task/{shell}/children", encoding="ascii") as children:
            cat = int(children.read())
        talker.pause()
        self.await_state(shell, "T")
        self.await_state(cat, "T")
        talker.resume()
        talker.say("awake again")
        self.assertEqual(talker.hear(), "awake again")
        talker.close()

    def test_who_pauses_ends_by_itself_when_it_is_closed(self):
        talker = sources.Talker(["cat"])
        talker.pause()
        self.await_state(talker.process.pid, "T")
        talker.close()
        self.assertEqual(talker.process.returncode, 0)


class Measured:
    """Stands in for a unit, and for a plan that has no other; counts what is asked of it."""

    def __init__(self, once=False, alone=False):
        self.units = [self]
        self.label = "counted"
        self.start = None
        self.once = once
        self.alone = alone or once
        self.calls = 0

    def measure(self):
        self.calls += 1
        return [sample("push", 0, float(self.calls))]


class SlowFor:
    """Stands in for the probe: throttled the first `times` it is asked, and then no more."""

    def __init__(self, times):
        self.times = times

    def slowdown(self):
        self.times -= 1
        return 1.0 if self.times < 0 else 2.0


class RunTest(unittest.TestCase):

    def run_all(self, throttled_for, repetitions=8, attempts=3):
        unit = Measured()
        options = argparse.Namespace(repetitions=repetitions, attempts=attempts)
        whole = run.Run(unit, options, SlowFor(throttled_for))
        whole.all()
        return unit, whole

    def test_where_nothing_is_throttled_nothing_is_done_again(self):
        unit, whole = self.run_all(throttled_for=0)
        self.assertEqual((unit.calls, whole.repeats), (8, 0))

    def test_what_is_measured_alone_comes_before_any_process_is_started(self):
        once, alone, other = Measured(once=True), Measured(alone=True), Measured()
        started_after = []
        other.start = lambda: started_after.append((once.calls, alone.calls))
        other.units = [other, once, alone]
        whole = run.Run(other, argparse.Namespace(repetitions=3, attempts=1), SlowFor(0))
        whole.all()
        self.assertEqual((once.calls, alone.calls, other.calls), (1, 3, 3))
        self.assertEqual(started_after, [(1, 3)])

    def test_what_was_throttled_before_or_after_is_done_again_and_left_out(self):
        # Of each attempt's two probes one is enough.
        unit, whole = self.run_all(throttled_for=3)
        self.assertEqual((unit.calls, whole.repeats), (10, 2))
        self.assertEqual([each["gbps"] for each in whole.samples], [float(i) for i in range(3, 11)])
        self.assertFalse(any(each["throttled"] for each in whole.samples))

    def test_the_last_attempt_stands_and_says_what_it_is(self):
        unit, whole = self.run_all(throttled_for=4, attempts=2)
        self.assertEqual(unit.calls, 9)
        self.assertEqual([each["throttled"] for each in whole.samples], [True] + 7 * [False])

    def test_on_a_machine_that_is_always_throttled_a_quarter_is_done_again(self):
        unit, whole = self.run_all(throttled_for=1000)
        self.assertEqual((unit.calls, whole.repeats), (10, 2))
        self.assertTrue(all(each["throttled"] for each in whole.samples))


class RowsTest(unittest.TestCase):

    def test_a_row_begins_with_the_fields_that_readers_rely_on(self):
        row, = rows.aggregate([sample("push", 0, 1.0)])
        self.assertEqual(list(row)[:10],
                         ["case", "size", "workers", "servers", "gbps", "ratio_to_raw_tcp",
                          "cpu_s_per_gb", "p50_us", "p99_us", "rss_mb"])

    def test_a_figure_is_the_median_with_its_range(self):
        row, = rows.aggregate([sample("push", i, gbps) for i, gbps in enumerate([5.0, 1.0, 3.0])])
        self.assertEqual((row["gbps"], row["gbps_min"], row["gbps_max"], row["repetitions"]),
                         (3.0, 1.0, 5.0, 3))

    def test_a_ratio_compares_within_one_repetition(self):
        # The machine is ten times slower in the second and third repetition.
        samples = [sample("raw_tcp", i, gbps) for i, gbps in enumerate([10.0, 1.0, 1.0])]
        samples += [sample("push", i, gbps) for i, gbps in enumerate([8.0, 0.8, 0.8])]
        self.assertEqual(rows.aggregate(samples)[1]["ratio_to_raw_tcp"], 0.8)

    def test_a_repetition_that_one_of_two_rows_lacks_is_left_out_of_their_ratio(self):
        samples = [sample("raw_tcp", i, gbps) for i, gbps in enumerate([10.0, 1.0])]
        row, other = rows.aggregate([*samples, sample("push", 1, 0.5)])
        self.assertEqual(rows.ratio(other, row), 0.5)
        self.assertIsNone(rows.ratio(row, {}))

    def test_raw_tcp_of_another_size_is_no_yardstick(self):
        samples = [sample("raw_tcp", 0, 10.0, size=MIB), sample("push", 0, 8.0)]
        self.assertIsNone(rows.aggregate(samples)[1]["ratio_to_raw_tcp"])

    def test_raw_tcp_of_several_streams_is_no_yardstick_of_one(self):
        samples = [sample("raw_tcp", 0, 10.0), sample("raw_tcp", 0, 5.0, workers=16),
                   sample("push", 0, 8.0)]
        self.assertEqual(rows.aggregate(samples)[2]["ratio_to_raw_tcp"], 0.8)


class VerdictTest(unittest.TestCase):

    def bar(self, samples, what):
        bar, = [bar for bar in verdict.judge(rows.aggregate(samples)) if bar.what == what]
        return bar

    def test_a_figure_at_its_bar_meets_it_and_one_below_does_not(self):
        for gbps, met in ((7.0, True), (6.9, False)):
            samples = [sample("raw_tcp", 0, 10.0), sample("push", 0, gbps)]
            self.assertIs(self.bar(samples, "push 16 MiB: of raw TCP").met, met)

    def test_beside_a_figure_stand_its_lowest_and_its_highest_repetition(self):
        samples = [sample("raw_tcp", i, 10.0) for i in range(3)]
        samples += [sample("push", i, gbps) for i, gbps in enumerate([8.0, 6.0, 7.5])]
        bar = self.bar(samples, "push 16 MiB: of raw TCP")
        self.assertEqual((bar.figure, bar.range), (0.75, "0.60 to 0.80"))
        self.assertEqual(self.bar(samples[:1] + samples[3:4], bar.what).range, "")

    def test_plain_sockets_that_apply_stand_between_raw_tcp_and_a_push(self):
        samples = [sample("raw_tcp", 0, 10.0, cpu_s_per_gb=0.2),
                   sample("raw_tcp_applied", 0, 8.0, cpu_s_per_gb=0.3),
                   sample("push_apply", 0, 6.0, cpu_s_per_gb=0.45)]
        for what, figure in (("raw TCP that applies 16 MiB: of raw TCP", 0.8),
                             ("raw TCP that applies 16 MiB: CPU s/GB by that of raw TCP", 1.5),
                             ("push_apply 16 MiB: of raw TCP that applies", 0.75),
                             ("push_apply 16 MiB: CPU s/GB by that of raw TCP that applies", 1.5)):
            bar = self.bar(samples, what)
            self.assertAlmostEqual(bar.figure, figure)
            self.assertEqual(bar.word, "stated")

    def test_every_bar_compares_within_one_repetition(self):
        # Ten times slower in the repetitions that make the median.
        speeds = list(enumerate([10.0, 1.0, 1.0]))
        samples = [sample("raw_tcp", i, speed, cpu_s_per_gb=1 / speed) for i, speed in speeds]
        samples += [sample("push_apply", i, speed, cpu_s_per_gb=2 / speed) for i, speed in speeds]
        samples += [sample("push_apply", i, speed, encoding="int8") for i, speed in speeds[:2]]
        for what, figure in (("push_apply 16 MiB: CPU s/GB by raw TCP's", 2.0),
                             ("int8 push_apply 16 MiB, loopback: by float32's", 1.0)):
            self.assertEqual(self.bar(samples, what).figure, figure)

    def test_scaling_compares_within_one_repetition(self):
        samples = [sample("pull", i, gbps * speed, workers=workers, fairness=0.9)
                   for workers, gbps in ((1, 1.0), (2, 5.0), (4, 4.5), (8, 4.5), (16, 4.5))
                   for i, speed in enumerate((10.0, 1.0, 1.0)) if workers < 16 or i < 2]
        bar = self.bar(samples, "pull 16 MiB: least from the peak to 16 workers by the peak")
        self.assertEqual(bar.figure, 0.9)

    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        bar = self.bar([sample("raw_tcp", 0, 10.0)], "pull 16 MiB: of raw TCP")
        self.assertIsNone(bar.met)
        self.assertEqual(bar.word, "not measured")

    def test_scaling_is_judged_from_the_peak_on(self):
        samples = [sample("pull", 0, gbps, workers=workers, fairness=0.9)
                   for workers, gbps in ((1, 1.0), (2, 4.0), (4, 5.0), (8, 4.5), (16, 4.0))]
        bar = self.bar(samples, "pull 16 MiB: least from the peak to 16 workers by the peak")
        self.assertEqual(bar.figure, 0.8)
        self.assertIs(bar.met, False)

    def test_pushes_in_flight_are_not_taken_for_the_one_that_they_are_compared_with(self):
        samples = [sample("push_apply", 0, 3.0, variant="4 in flight"),
                   sample("push_apply", 0, 4.0)]
        bar = self.bar(samples, "push_apply 16 MiB: four in flight by one")
        self.assertEqual(bar.figure, 0.75)

    def test_the_optimizers_are_judged_by_an_empty_loop(self):
        samples = [{"case": "apply_kernel", "variant": "cold/sgd/avx512/threads:1", "gbps": 20.0,
                    "of_limit": 0.8, "repetition": 0, "throttled": False}]
        bar = self.bar(samples, "cold/sgd/avx512/threads:1: of the memory bandwidth limit")
        self.assertEqual(bar.word, "**not met**")

    def test_encodings_over_the_link_are_compared_with_float32_over_the_link(self):
        samples = [sample("link_push_apply", 0, gbps, encoding=encoding, variant="1 Gbit/s")
                   for encoding, gbps in (("float32", 0.1), ("bfloat16", 0.2))]
        bar = self.bar(samples, "bfloat16 push over 1 Gbit/s: elements/s by float32's")
        self.assertEqual(bar.figure, 2.0)


class TablesTest(unittest.TestCase):

    def test_a_table_has_no_column_without_a_figure(self):
        text = tables.summary(rows.aggregate(
            [sample("raw_tcp", 0, 10.0), sample("push_apply", 0, 7.0)]))
        self.assertIn("| size | raw TCP | push + apply |", text)
        self.assertIn("| 16 MiB | 10.00 | 7.00 (0.70) |", text)

    def test_both_ends_of_an_encoding_stand_in_one_line(self):
        ends = [{"case": "encoding_end", "encoding": encoding, "variant": end, "gbps": gbps,
                 "repetition": 0, "throttled": False}
                for encoding, end, gbps in (("float32", "server", 5.0), ("int8", "worker", 7.0),
                                            ("int8", "server", 4.0))]
        text = tables.summary(rows.aggregate(ends))
        self.assertIn("| float32 |  | 5.0 |", text)
        self.assertIn("| int8 | 7.0 | 4.0 |", text)


if __name__ == "__main__":
    unittest.main()
