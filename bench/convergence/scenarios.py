"""Scenarios: speeds of workers over time, deaths of workers, and the duration of a transfer."""

import bisect
import dataclasses
import functools
import math
from typing import Callable

import numpy

# A step on a whole batch at speed 1, and a call to a server that carries next to nothing.
STEP_SECONDS = 0.05
CALL_SECONDS = 0.001
# Steps are never quite alike; without it, equal workers would act at the same instant for ever.
JITTER = 0.02
# How long a server holds a dead worker's slot (JobSpec.membership).
LEASE_SECONDS = 2.0


@dataclasses.dataclass
class Scenario:
    name: str
    workers: int
    # (worker, time, seed) -> (speed, until when it is so)
    speed: Callable = lambda worker, time, seed: (1.0, math.inf)
    # The speeds by which a user would set batches by hand.
    usual_speed: Callable = lambda worker: 1.0
    jitter: float = JITTER
    bits_per_second: float = math.inf  # of each worker's link; servers' links are not the limit
    dies: tuple = ()  # worker; at half of the time that the fastest possible run takes
    away_seconds: float = 10.0

    def end(self, worker, begin, work, seed):
        """When `work` seconds at speed 1 are done."""
        time = begin
        while True:
            speed, until = self.speed(worker, time, seed)
            if work <= speed * (until - time):
                return time + work / speed
            work -= speed * (until - time)
            time = until

    def transfer(self, size):
        return CALL_SECONDS + 8 * size / self.bits_per_second


def slow(name, workers, those, times=4):
    def usual(worker):
        return 1 / times if worker in those else 1.0
    return Scenario(name, workers, lambda worker, time, seed: (usual(worker), math.inf), usual)


def pausing(worker, time, seed):
    """Worker 0 works for 8 s and stands still for 2."""
    if worker != 0:
        return 1.0, math.inf
    turn = math.floor(time / 10)
    # At the very end of a piece, the next one counts, or time would stand still.
    if time >= 10 * turn + 8 - 1e-9:
        return (0.0, 10.0 * (turn + 1)) if time < 10 * (turn + 1) - 1e-9 else (1.0, 10.0 * turn + 18)
    return 1.0, 10.0 * turn + 8


def changing(worker, time, seed):
    """Log-normal with sigma 0.5, drawn anew each minute."""
    minute = int((time + 1e-9) // 60)
    draw = numpy.random.default_rng([seed, worker, minute]).standard_normal()
    return math.exp(0.5 * draw), 60.0 * (minute + 1)


@functools.lru_cache(maxsize=None)
def _stops(worker, seed):
    """The times at which the worker stops, goes on, stops and so on, as far as drawn, and the generator."""
    return [], numpy.random.default_rng([seed, worker, 7])


def flaky(worker, time, seed):
    """Every worker stands still at random: for 1 s every 8 s on average, both exponential."""
    times, draw = _stops(worker, seed)
    while not times or times[-1] <= time + 1e-9:
        times.append((times[-1] if times else 0.0) + draw.exponential(7.0))
        times.append(times[-1] + draw.exponential(1.0))
    passed = bisect.bisect(times, time + 1e-9)
    return (0.0 if passed % 2 else 1.0), times[passed]


def all_of(workers=3):
    return {scenario.name: scenario for scenario in (
        Scenario("none", workers),
        slow("one_slow", workers, {workers - 1}),
        slow("two_of_eight_slow", 8, {6, 7}),
        Scenario("pauses", workers, pausing),
        Scenario("changing", workers, changing),
        Scenario("flaky", workers, flaky),
        Scenario("dies", workers, dies=(workers - 1,)),
        Scenario("link", workers, bits_per_second=100e6),
    )}
