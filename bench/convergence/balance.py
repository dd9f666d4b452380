"""Batches by speed (Chen et al. 2020), as training.balance has it."""

import collections
import statistics

# A speed is the median of so many: two that are off, as by a pause, do not change it.
SPEEDS = 5
MOST_MOVED = 0.25
START_MOVING, STOP_MOVING = 0.1, 0.03
FLOOR, CEILING = 1 / 8, 2.0


class Balance:
    """Plans all shares at once, and anew for each step of all workers."""

    def __init__(self, workers, equal):
        self._speeds = [collections.deque(maxlen=SPEEDS) for _ in range(workers)]
        self._share = [equal] * workers
        self._moving = False
        self._planned = None  # (turn, live) of the latest plan
        self._batches = {}

    def measured(self, worker, samples, seconds):
        self._speeds[worker].append(samples / seconds)

    def batch(self, worker, live, turn, whole):
        """The next batch of `worker`, one of `live`, in step `turn`; `whole`: samples of all of them."""
        if self._planned != (turn, live):
            self._plan(live, whole)
            self._planned = turn, live
        return self._batches[worker]

    def _wanted(self, live, whole):
        speeds = {other: statistics.median(self._speeds[other]) for other in live if self._speeds[other]}
        shares = sum(self._share[other] for other in speeds)
        # The share of a worker that has not computed yet is taken to be right.
        each = sum(speeds.values()) / shares if shares else 1.0
        for other in live:
            speeds.setdefault(other, self._share[other] * each)
        equal, speed = whole / len(live), sum(speeds.values())
        return {other: min(max(whole * speeds[other] / speed, FLOOR * equal), CEILING * equal) for other in live}

    def _plan(self, live, whole):
        share, wanted = self._share, self._wanted(live, whole)
        off = max(abs(wanted[other] - share[other]) / share[other] for other in live)
        adds_up = abs(sum(share[other] for other in live) - whole) < 0.5
        self._moving = not adds_up or off > (STOP_MOVING if self._moving else START_MOVING)
        if self._moving:
            for other in live:
                share[other] = min(max(wanted[other], share[other] * (1 - MOST_MOVED)), share[other] * (1 + MOST_MOVED))
            scale = whole / sum(share[other] for other in live)
            for other in live:
                share[other] *= scale
        # Whole numbers with the same sum: the largest rests are rounded up.
        self._batches = {other: max(1, int(share[other] + 1e-9)) for other in live}
        missing = max(0, round(whole) - sum(self._batches.values()))
        for other in sorted(live, key=lambda other: (self._batches[other] - share[other], other))[:missing]:
            self._batches[other] += 1


def by_hand(speeds, batch_size):
    """The batches of a user who knows each speed and wants the whole batch to stay as it is."""
    whole = len(speeds) * batch_size
    batches = [round(whole * speed / sum(speeds)) for speed in speeds]
    batches[-1] += round(whole) - sum(batches)
    return batches
