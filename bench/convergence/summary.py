"""Figures of several seeds' rows: medians, ranges, and how many never got there."""

import dataclasses
import math
import statistics


@dataclasses.dataclass
class Figure:
    median: float  # of those that have one; None if none has
    low: float
    high: float
    count: int
    never: int = 0


def figure(values):
    found = [value for value in values if value is not None and math.isfinite(value)]
    if not found:
        return Figure(None, None, None, 0, len(values))
    # A run that never got there is later than all that did.
    ranked = sorted(found) + [math.inf] * (len(values) - len(found))
    median = statistics.median_low(ranked) if len(found) < len(values) else statistics.median(found)
    return Figure(median if math.isfinite(median) else None, min(found), max(found), len(found),
                  len(values) - len(found))


def groups(rows, *by):
    """{values of the fields `by`: rows}, in the order of first appearance."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[field] for field in by), []).append(row)
    return found


def first_met(row, target):
    """The first look of at least this accuracy; None: never."""
    return next((look for look in row["looks"] if look["accuracy"] is not None and
                 look["accuracy"] >= target), None)


def to_target(rows, target, what):
    """Figure of `what` ("seconds", "samples", "bytes") at the first look that met the target."""
    met = [first_met(row, target) for row in rows]
    return figure([look and look[what] for look in met])


def at_time(row, seconds):
    """Accuracy at the last look that was not after `seconds`; None before the first."""
    before = [look["accuracy"] for look in row["looks"] if look["seconds"] <= seconds]
    return before[-1] if before else None


def final(rows):
    """Figure of the accuracy at equal samples, or of the loss where there is none; a larger number of
    `never` counts runs that diverged."""
    has_accuracy = rows[0]["final"]["accuracy"] is not None
    return figure([row["final"]["accuracy" if has_accuracy else "loss"] for row in rows])


def mean_lag(rows):
    total = sum(int(lag) * count for row in rows for lag, count in row["lags"].items())
    return total / max(1, sum(count for row in rows for count in row["lags"].values()))


def largest_lag(rows):
    return max(int(lag) for row in rows for lag in row["lags"])


def lost_part(rows):
    """The part of all computed samples whose gradients were not applied."""
    return sum(row["lost"] for row in rows) / sum(row["lost"] + row["final"]["samples"] for row in rows)
