"""Detects growing memory, for the stage `leak` of deploy/gpu_test.sh."""

import statistics

from machine import MIB

# The number of windows that the samples are divided into.
WINDOWS = 6


def windows_of(held):
    """Returns the medians of WINDOWS periods, without the first third, in which caches fill."""
    rest = held[len(held) // 3:]
    return [statistics.median(rest[i * len(rest) // WINDOWS:(i + 1) * len(rest) // WINDOWS])
            for i in range(WINDOWS)]


def keeps_growing(held):
    """Returns true if the memory grows by more than noise, and in most windows.

    A fragmented heap may grow once at any time, by the size of an evaluation's activations. A leak continues.
    """
    windows = windows_of(held)
    rises = sum(later > earlier for earlier, later in zip(windows, windows[1:]))
    return windows[-1] > windows[0] * 1.01 + 4 * MIB and rises > (WINDOWS - 1) / 2
