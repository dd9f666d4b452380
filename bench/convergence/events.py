"""The virtual clock."""

import heapq
import itertools


class Events:
    """Calls by time. Calls at the same time run in the order in which they were added."""

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
