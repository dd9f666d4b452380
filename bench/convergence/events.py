"""The virtual clock."""

import heapq
import itertools


class Events:
    """What happens when. Of two things at one time, that which was asked for first comes first."""

    def __init__(self):
        self.now = 0.0
        self._heap = []
        self._count = itertools.count()

    def at(self, time, call):
        heapq.heappush(self._heap, (max(time, self.now), next(self._count), call))

    def run(self):
        while self._heap:
            self.now, _, call = heapq.heappop(self._heap)
            call()
