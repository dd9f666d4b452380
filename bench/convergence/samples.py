"""Hands out samples: each epoch in an order of its own, and again those whose gradients were lost."""

import numpy


class SamplePool:

    def __init__(self, samples, epochs, seed):
        draw = numpy.random.default_rng([seed, 1])
        self.total = samples * epochs
        self._order = numpy.concatenate([draw.permutation(samples) for _ in range(epochs)])
        self._next = 0
        self._returned = []

    def left(self):
        return self.total - self._next + sum(len(returned) for returned in self._returned)

    def take(self, count):
        """At most `count` samples, and the part of all that was handed out before: (indices, progress)."""
        progress = self._next / self.total
        if self._returned:
            taken = self._returned.pop(0)
            if len(taken) > count:
                self._returned.insert(0, taken[count:])
            return taken[:count], progress
        taken = self._order[self._next:self._next + count]
        self._next += len(taken)
        return taken, progress

    def give_back(self, indices):
        if len(indices):
            self._returned.append(indices)
