"""Real processes stand still where a scenario says so: SIGSTOP, later SIGCONT."""

import math
import os
import signal
import time

import scenarios


def of(scenario, worker, seed, longest):
    """(begin, end) of each standstill of a worker that begins in the first `longest` seconds, in order."""
    found, now = [], 0.0
    while now < longest:
        speed, until = scenario.speed(worker, now, seed)
        if speed == 0:
            found.append((now, until))
        now = until
    return found


def changes(name, workers, seed, fastest, longest=10000.0):
    """(seconds, worker, signal) in order of time. `fastest` is the shortest possible time of the job."""
    scenario = scenarios.all_of(workers)[name]
    found = [(when, worker, number) for worker in range(workers)
             for begin, end in of(scenario, worker, seed, longest)
             for when, number in ((begin, signal.SIGSTOP), (end, signal.SIGCONT))]
    for worker in scenario.dies:
        found += [(fastest / 2, worker, signal.SIGSTOP),
                  (fastest / 2 + scenario.away_seconds, worker, signal.SIGCONT)]
    return sorted(change for change in found if math.isfinite(change[0]))


def send(processes, plan):
    """Sends the signals of changes(), in seconds from now, to the process ids in `processes`, by worker."""
    began = time.monotonic()
    for when, worker, number in plan:
        time.sleep(max(0.0, began + when - time.monotonic()))
        try:
            os.kill(processes[worker], number)
        except ProcessLookupError:
            pass
