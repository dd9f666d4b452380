"""Runs the measurements of bench/plan.py; bench/run.sh builds the programs and calls this.

Repetition i of every case runs before repetition i + 1 of any case, so that a slow phase of the machine
affects all cases. Before and after each repetition a probe times fixed arithmetic on every core. If that
took much longer than at best, the repetition is done again.
"""

import argparse
import hashlib
import os
import sys
import time

import rows as measured
import verdict
from plan import Plan
from sources import Skipped

PROBE = bytes(2 << 20)
# The largest acceptable ratio of the probe's time to the best time.
THROTTLED = 1.25


class SpinProbe:
    """Measures the current speed of the cores relative to the best speed seen."""

    def __init__(self):
        self.cores = sorted(os.sched_getaffinity(0))
        self.best = min(self._slowest_core() for _ in range(10))

    def slowdown(self):
        seconds = self._slowest_core()
        self.best = min(self.best, seconds)
        return seconds / self.best

    def _slowest_core(self):
        slowest = 0.0
        for core in self.cores:
            os.sched_setaffinity(0, {core})
            begin = time.perf_counter()
            hashlib.sha256(PROBE)
            slowest = max(slowest, time.perf_counter() - begin)
        os.sched_setaffinity(0, self.cores)
        return slowest


class Run:
    """Runs all repetitions. `samples` holds the results, `skipped` the reasons for missing ones."""

    def __init__(self, plan, options, probe):
        self.plan = plan
        self.options = options
        self.probe = probe
        self.samples = []
        self.skipped = {}
        self.repeats = 0
        # Limits the repeats; on a busy machine every repetition would be repeated.
        self.repeats_left = len(plan.units) * options.repetitions // 4

    def all(self):
        alone = [unit for unit in self.plan.units if unit.alone]
        others = [unit for unit in self.plan.units if not unit.alone]
        for unit in alone:
            for repetition in range(1 if unit.once else self.options.repetitions):
                self._one(unit, repetition)
        for unit in others:
            if unit.start:
                unit.start()
        for repetition in range(self.options.repetitions):
            begin = time.monotonic()
            for unit in others:
                self._one(unit, repetition)
            print(f"repetition {repetition + 1} of {self.options.repetitions}: "
                  f"{time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    def _one(self, unit, repetition):
        if unit.label in self.skipped:
            return
        for attempt in range(self.options.attempts):
            slowdown = self.probe.slowdown()
            try:
                samples = unit.measure()
            except (Skipped, ValueError, KeyError, OSError) as why:
                # A failing program must not affect the other figures.
                if str(why) not in self.skipped.values():
                    print(f"left out: {unit.label}: {why}", file=sys.stderr, flush=True)
                self.skipped[unit.label] = str(why)
                return
            slowdown = max(slowdown, self.probe.slowdown())
            throttled = slowdown > THROTTLED
            last = attempt + 1 == self.options.attempts or unit.once or self.repeats_left == 0
            if not throttled or last:
                break
            self.repeats += 1
            self.repeats_left -= 1
        for sample in samples:
            self.samples.append({**sample, "repetition": repetition, "throttled": throttled})


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", default=[], metavar="NAME",
                        help="only this case or group; may be repeated; includes raw TCP")
    parser.add_argument("--json", metavar="FILE", help="writes the rows here")
    parser.add_argument("--repetitions", type=int, default=0, help="default 5; 2 with --quick")
    parser.add_argument("--seconds", type=float, default=0,
                        help="seconds of one repetition; default 0.4")
    parser.add_argument("--memory_seconds", type=float, default=0,
                        help="seconds of the memory case; default 30")
    parser.add_argument("--attempts", type=int, default=3,
                        help="attempts at a repetition while the machine is throttled")
    parser.add_argument("--quick", action="store_true", help="small sizes, as a test")
    options = parser.parse_args(arguments)
    options.repetitions = options.repetitions or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.05 if options.quick else 0.4)
    options.memory_seconds = options.memory_seconds or \
        (2 if options.quick else 30)
    return options


def describe(run, seconds):
    """Returns the conditions of the measurement, as text."""
    lines = [f"{run.options.repetitions} repetitions of {run.options.seconds} s, taking turns, on "
             f"{os.cpu_count()} cores, in {seconds:.0f} s."]
    throttled = sum(sample["throttled"] for sample in run.samples)
    lines.append(f"The spin probe found the machine throttled {run.repeats + throttled} times; "
                 f"{run.repeats} repetitions were repeated, {throttled} samples were kept "
                 "anyway.")
    for why in dict.fromkeys(run.skipped.values()):
        labels = [label for label, other in run.skipped.items() if other == why]
        lines.append(f"Left out: {'; '.join(labels)}: {why}.")
    return "\n".join(lines) + "\n"


def main():
    options = parse(sys.argv[1:])
    begin = time.monotonic()
    try:
        plan = Plan(options)
    except Skipped as why:
        sys.exit(f"bench/run.sh: {why}")
    run = Run(plan, options, SpinProbe())
    try:
        run.all()
    finally:
        plan.close()
    rows = measured.aggregate(run.samples)
    if options.json:
        measured.write_json(options.json, rows)
    print(describe(run, time.monotonic() - begin) + "\n" + verdict.markdown(verdict.judge(rows)))


if __name__ == "__main__":
    main()
