"""Tests repetitions and pauses, and the steps from samples to rows and verdicts."""

import argparse
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bench"))
import rows  # noqa: E402  the path comes first
import run  # noqa: E402
import sources  # noqa: E402
import verdict  # noqa: E402

MIB = 1 << 20


def sample(case, repetition, gbps, size=16 * MIB, **more):
    return {"case": case, "size": size, "workers": 1, "servers": 1, "transport": "tcp",
            "encoding": "float32", "variant": "", "gbps": gbps, "cpu_s_per_gb": 0.2,
            "p50_us": 1.0, "p99_us": 2.0, "rss_mb": 3.0, "repetition": repetition,
            "throttled": False, **more}


class TalkerTest(unittest.TestCase):

    def await_state(self, pid, state):
        while True:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == state:
                    return

    def test_pause_stops_the_process_tree_until_resume(self):
        # `true` keeps the shell from replacing itself with cat.
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

    def test_close_ends_a_paused_process(self):
        talker = sources.Talker(["cat"])
        talker.pause()
        self.await_state(talker.process.pid, "T")
        talker.close()
        self.assertEqual(talker.process.returncode, 0)


class Measured:
    """Fake unit that is also a plan with this unit only; counts measurements."""

    def __init__(self):
        self.units = [self]
        self.label = "counted"
        self.start = None
        self.once = self.alone = False
        self.calls = 0

    def measure(self):
        self.calls += 1
        return [sample("push", 0, float(self.calls))]


class SlowFor:
    """Fake probe that reports throttling for the first `times` calls."""

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

    def test_repeats_only_if_throttled(self):
        unit, whole = self.run_all(throttled_for=0)
        self.assertEqual((unit.calls, whole.repeats), (8, 0))

    def test_repeats_and_drops_throttled_attempts(self):
        # One throttled probe of the two around an attempt is enough.
        unit, whole = self.run_all(throttled_for=3)
        self.assertEqual((unit.calls, whole.repeats), (10, 2))
        self.assertEqual([each["gbps"] for each in whole.samples], [float(i) for i in range(3, 11)])
        self.assertFalse(any(each["throttled"] for each in whole.samples))

    def test_repeats_at_most_a_quarter(self):
        unit, whole = self.run_all(throttled_for=1000)
        self.assertEqual((unit.calls, whole.repeats), (10, 2))
        self.assertTrue(all(each["throttled"] for each in whole.samples))


class RowsTest(unittest.TestCase):

    def test_figure_is_the_median_with_range(self):
        row, = rows.aggregate([sample("push", i, gbps) for i, gbps in enumerate([5.0, 1.0, 3.0])])
        self.assertEqual((row["gbps"], row["gbps_min"], row["gbps_max"], row["repetitions"]),
                         (3.0, 1.0, 5.0, 3))

    def test_ratio_compares_within_one_repetition(self):
        # The machine is ten times slower in the second and third repetition.
        samples = [sample("raw_tcp", i, gbps) for i, gbps in enumerate([10.0, 1.0, 1.0])]
        samples += [sample("push", i, gbps) for i, gbps in enumerate([8.0, 0.8, 0.8])]
        self.assertEqual(rows.aggregate(samples)[1]["ratio_to_raw_tcp"], 0.8)

    def test_ratio_omits_unpaired_repetitions(self):
        samples = [sample("raw_tcp", i, gbps) for i, gbps in enumerate([10.0, 1.0])]
        row, other = rows.aggregate([*samples, sample("push", 1, 0.5)])
        self.assertEqual(rows.ratio(other, row), 0.5)
        self.assertIsNone(rows.ratio(row, {}))

    def test_multi_stream_tcp_is_not_compared_with_one(self):
        samples = [sample("raw_tcp", 0, 10.0), sample("raw_tcp", 0, 5.0, workers=16),
                   sample("push", 0, 8.0)]
        self.assertEqual(rows.aggregate(samples)[2]["ratio_to_raw_tcp"], 0.8)


class VerdictTest(unittest.TestCase):

    def bar(self, samples, what):
        bar, = [bar for bar in verdict.judge(rows.aggregate(samples)) if bar.what == what]
        return bar

    def test_figure_at_the_bar_meets_it(self):
        for gbps, met in ((8.5, True), (8.4, False)):
            samples = [sample("in_process_apply", 0, 10.0, transport="memory"),
                       sample("push_apply", 0, gbps, transport="shm")]
            self.assertIs(self.bar(samples, "shm push_apply 16 MiB: of the same apply in-process").met,
                          met)

    def test_figure_includes_its_range(self):
        samples = [sample("raw_tcp", i, 10.0) for i in range(3)]
        samples += [sample("pull", i, gbps) for i, gbps in enumerate([8.0, 6.0, 7.5])]
        bar = self.bar(samples, "pull 16 MiB: of raw TCP")
        self.assertEqual((bar.figure, bar.range, bar.word), (0.75, "0.60 to 0.80", "stated"))
        self.assertEqual(self.bar(samples[:1] + samples[3:4], bar.what).range, "")

    def test_bars_compare_within_one_repetition(self):
        # The machine is ten times slower in the repetitions that determine the median.
        speeds = list(enumerate([10.0, 1.0, 1.0]))
        over = {"variant": "10 Gbit/s, 1 ms"}
        samples = [sample("link_raw_tcp", i, speed, cpu_s_per_gb=1 / speed, **over)
                   for i, speed in speeds]
        samples += [sample("link_pull", i, speed, cpu_s_per_gb=2 / speed, **over)
                    for i, speed in speeds]
        bar = self.bar(samples, "pull over 10 Gbit/s, 1 ms: CPU s/GB by raw TCP's")
        self.assertEqual((bar.figure, bar.met), (2.0, True))

    def test_unmeasured_bar_is_neither_met_nor_missed(self):
        bar = self.bar([sample("memcpy", 0, 10.0)], "shm pull 16 MiB: of memcpy")
        self.assertIsNone(bar.met)
        self.assertEqual(bar.word, "not measured")

    def test_compares_link_encodings_with_float32(self):
        samples = [sample("link_push_apply", 0, gbps, encoding=encoding, variant="1 Gbit/s, 0 ms")
                   for encoding, gbps in (("float32", 0.1), ("bfloat16", 0.2))]
        bar = self.bar(samples, "bfloat16 push over 1 Gbit/s, 0 ms: elements/s by float32's")
        self.assertEqual(bar.figure, 2.0)


if __name__ == "__main__":
    unittest.main()
