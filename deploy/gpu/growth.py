"""Whether what a process holds grows, in the stage `leak` of deploy/gpu_test.sh."""

import statistics

from machine import MIB

# Into so many parts of its time the stage cuts what it has seen.
WINDOWS = 6


def windows_of(held):
    """Medians of WINDOWS stretches of time, without the first third, in which caches fill."""
    rest = held[len(held) // 3:]
    return [statistics.median(rest[i * len(rest) // WINDOWS:(i + 1) * len(rest) // WINDOWS])
            for i in range(WINDOWS)]


def keeps_growing(held):
    """Whether bytes leak: they grow by more than noise, and in most windows.

    A heap may take one more piece at any time, of the size of an evaluation's activations, when what it
    has free lies in two places. A leak goes on.
    """
    windows = windows_of(held)
    rises = sum(later > earlier for earlier, later in zip(windows, windows[1:]))
    return windows[-1] > windows[0] * 1.01 + 4 * MIB and rises > (WINDOWS - 1) / 2
