"""The search for a rate: on one grid for all, the powers of two times the task's first, until the best is
inside. Accuracy, or loss where there is none, on a part of the training set that nobody trains on."""

import math


def quality(row):
    """Higher is better; a run that diverged is worst."""
    final = row["final"]
    value = final["accuracy"] if final["accuracy"] is not None else -final["loss"]
    return value if math.isfinite(value) and math.isfinite(final["loss"]) else -math.inf


def search(first, run, most=8):
    """The best rate; `run(rate)` gives a row. Begins with `first` and both neighbours, and goes on from the
    better end, `most` runs at most."""
    found = {step: quality(run(first * 2.0**step)) for step in (-1, 0, 1)}
    while len(found) < most:
        best = max(found, key=lambda step: found[step])
        wanted = best - 1 if best == min(found) else best + 1 if best == max(found) else None
        if wanted is None:
            break
        found[wanted] = quality(run(first * 2.0**wanted))
    return first * 2.0**max(found, key=lambda step: found[step])
