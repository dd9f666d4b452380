#!/usr/bin/env python3
"""Holds the rows of one run against what the data plane must show.

  verdict.py FILE.json      prints one line per bar: the figure, the bar, met or not met

Exits 1 if a bar is not met or has no figure.
"""

import itertools
import json
import statistics
import sys

from rows import ratio, ratios
from sizes import LARGE, MIB, size_name


class Bar:
    """One figure and what it has to be: at least `least`, or at most `most`. The figure is the
    median of `each`, which has one for each repetition, or the only one; None where there is none.
    """

    def __init__(self, point, what, each, least=None, most=None):
        self.point = point
        self.what = what
        self.each = each if isinstance(each, list) else [each] if each is not None else []
        self.figure = statistics.median(self.each) if self.each else None
        self.least = least
        self.most = most

    @property
    def met(self):
        """None: there is no figure, or no bar."""
        if self.figure is None or (self.least is None and self.most is None):
            return None
        return (self.least is None or self.figure >= self.least) and \
            (self.most is None or self.figure <= self.most)

    @property
    def wanted(self):
        if self.least is not None:
            return f">= {self.least:g}"
        return f"<= {self.most:g}" if self.most is not None else ""

    @property
    def range(self):
        """Lowest and highest repetition."""
        return f"{min(self.each):.2f} to {max(self.each):.2f}" if len(self.each) > 1 else ""

    @property
    def word(self):
        if self.figure is None:
            return "not measured"
        return {True: "met", False: "**not met**", None: "stated"}[self.met]


class Rows:
    """Finds rows by their fields; what is not named is one worker, one server, TCP, float32, in no
    variant."""

    def __init__(self, rows):
        self.rows = rows

    def find(self, case, **wanted):
        wanted = {"workers": 1, "servers": 1, "transport": "tcp", "encoding": "float32",
                  "variant": "", **wanted}
        for row in self.rows:
            if row["case"] == case and all(row.get(key) == value for key, value in wanted.items()):
                return row
        return {}

    def all(self, case):
        return [row for row in self.rows if row["case"] == case]


def tcp(rows):
    bars = {"push": 0.70, "push_apply": 0.66, "pull": 0.70, "push_pull": 0.68}
    for size in LARGE:
        raw = rows.find("raw_tcp", size=size)
        for case, least in bars.items():
            yield Bar(1, f"{case} {size_name(size)}: of raw TCP",
                      ratios(rows.find(case, size=size), raw), least=least)
        for case in bars:
            yield Bar(1, f"{case} {size_name(size)}: CPU s/GB by raw TCP's",
                      ratios(rows.find(case, size=size), raw, "cpu_s_per_gb"), most=1.5)
    for case in bars:
        row = rows.find(case, size=MIB)
        yield Bar(1, f"{case} 1 MiB: of raw TCP", ratios(row, rows.find("raw_tcp", size=MIB)),
                  least=0.6)
        yield Bar(1, f"{case} 1 MiB: of raw TCP that waits for an answer to each message",
                  ratios(row, rows.find("raw_tcp_answered", size=MIB)))
    yield from applied_without_us(rows)
    for size in LARGE:
        yield Bar(1, f"push_apply {size_name(size)}: four in flight by one",
                  ratios(rows.find("push_apply", size=size, variant="4 in flight"),
                         rows.find("push_apply", size=size)), least=1.0)
        yield Bar(1, f"push_apply {size_name(size)}: four workers by one",
                  ratios(rows.find("push_apply", size=size, workers=4),
                         rows.find("push_apply", size=size)))


def applied_without_us(rows):
    """How much of the way from raw TCP to a push that is applied plain sockets would go as well."""
    for size in (MIB, *LARGE):
        steps = [("raw TCP", "raw_tcp"), ("raw TCP that applies", "raw_tcp_applied"),
                 ("push_apply", "push_apply")]
        for (before, other_case), (what, case) in zip(steps, steps[1:]):
            row, other = rows.find(case, size=size), rows.find(other_case, size=size)
            yield Bar(1, f"{what} {size_name(size)}: of {before}", ratios(row, other))
            yield Bar(1, f"{what} {size_name(size)}: CPU s/GB by that of {before}",
                      ratios(row, other, "cpu_s_per_gb"))


def one_host(rows):
    for size in LARGE:
        push = rows.find("push_apply", size=size, transport="shm")
        yield Bar(2, f"shm push_apply {size_name(size)}: of the same apply in-process",
                  ratios(push, rows.find("in_process_apply", size=size, transport="memory")),
                  least=0.85)
        yield Bar(2, f"shm push_apply {size_name(size)}: of raw TCP",
                  ratios(push, rows.find("raw_tcp", size=size)), least=1.0)
        yield Bar(2, f"shm pull {size_name(size)}: of memcpy",
                  ratios(rows.find("pull", size=size, transport="shm"),
                         rows.find("memcpy", size=size, transport="memory")), least=0.8)


def small(rows):
    for transport, most in (("tcp", 1.3), ("shm", None)):
        yield Bar(3, f"{transport} push_apply 4 KiB: median by that of a bare gRPC ping",
                  ratios(rows.find("push_apply", size=4096, transport=transport),
                         rows.find("ping", size=4096, transport=transport), "p50_us"), most=most)


def kernels(rows):
    for row in rows.all("apply_kernel"):
        optimizer = row["variant"].removeprefix("cold/").split("/")[0]
        told = row["variant"].startswith("cold/") and "threads:" in row["variant"]
        if told and optimizer in ("sgd", "sgd_momentum", "adamw"):
            yield Bar(4, f"{row['variant']}: of the memory bandwidth limit", row.get("of_limit"),
                      least=0.85)
        if row.get("times_torch") is not None:
            yield Bar(4, f"{optimizer}: times torch::optim", row["times_torch"],
                      least=2.0 if optimizer == "adam" else None)


def encodings(rows):
    link = "1 Gbit/s"
    for encoding, least in (("bfloat16", 1.8), ("float16", None), ("int8", 3.0), ("top_k", None)):
        yield Bar(5, f"{encoding} push over 1 Gbit/s: elements/s by float32's",
                  ratios(rows.find("link_push_apply", encoding=encoding, variant=link),
                         rows.find("link_push_apply", variant=link)), least=least)
    for size in LARGE:
        for encoding in ("bfloat16", "int8"):
            yield Bar(5, f"{encoding} push_apply {size_name(size)}, loopback: by float32's",
                      ratios(rows.find("push_apply", size=size, encoding=encoding),
                             rows.find("push_apply", size=size)), least=1.0)


def train_steps(rows):
    for row in rows.all("train_step"):
        if not row["variant"].endswith("/worker"):
            continue
        model, place, _ = row["variant"].split("/")
        judged = place == "own_core" and model in ("resnet18", "convnet")
        yield Bar(6, f"{model}, {place}: a worker's step by the same loop's alone",
                  row.get("times_alone"), most=1.05 if judged else None)


def memory(rows):
    for row in rows.all("memory"):
        seconds = row.get("seconds", 0)
        yield Bar(7, f"{row['transport']}: most RSS in {seconds:.0f} s by its ceiling of "
                  f"{row['ceiling_mb']:.0f} MB", row["rss_mb"] / row["ceiling_mb"], most=1.0)


def gloo(rows):
    other = rows.find("gloo_all_reduce", size=100 * MIB, workers=2, servers=0)
    # One worker's push and pull move as many bytes as all_reduce between two processes. Where server
    # and worker share a host, as they do here, they take shared memory unasked.
    for workers, transport in ((1, "shm"), (1, "tcp"), (2, "shm"), (2, "tcp")):
        yield Bar(8, f"{transport} push_pull 100 MiB, {workers} worker{'s' if workers > 1 else ''}: "
                  "time by gloo all_reduce's",
                  ratios(rows.find("push_pull", size=100 * MIB, workers=workers,
                                   transport=transport), other, "p50_us"),
                  most=0.65 if workers == 1 else None)


def least_from_peak(rows):
    """The lowest rate from the highest one on, by the highest; None if a row has no rate."""
    rates = [ratio(row, rows[0]) for row in rows]
    if None in rates:
        return None
    peak = rates.index(max(rates))
    return min(ratio(row, rows[peak]) for row in rows[peak:])


def scaling(rows):
    # The yardsticks: as many streams into one process, and as many processes that only copy, which
    # share the cores as the scheduler has it.
    yardsticks = (("raw_tcp", "tcp"), ("memcpy", "memory"))
    product = itertools.product(("push_apply", "pull", "push_pull"), ("tcp", "shm"))
    for case, transport in (*yardsticks, *product):
        judged = transport == "tcp" and case != "raw_tcp"
        what = f"shm {case}" if transport == "shm" else case
        found = [rows.find(case, size=16 * MIB, workers=workers, transport=transport)
                 for workers in (1, 2, 4, 8, 16)]
        yield Bar(9, f"{what} 16 MiB: least from the peak to 16 workers by the peak",
                  least_from_peak(found), least=0.85 if judged else None)
        fair = [row["fairness"] for row in found[1:] if row.get("fairness")]
        yield Bar(9, f"{what} 16 MiB: slowest slot by fastest, 2 to 16 workers",
                  min(fair) if len(fair) == len(found) - 1 else None,
                  least=0.8 if judged else None)
        if judged:
            yield Bar(9, f"{what} 16 MiB, 16 workers: of raw TCP's 16 streams",
                      ratios(found[-1], rows.find("raw_tcp", size=16 * MIB, workers=16)))


def judge(rows):
    table = Rows(rows)
    return [bar for point in (tcp, one_host, small, kernels, encodings, train_steps, memory, gloo,
                              scaling) for bar in point(table)]


def markdown(bars):
    lines = ["| point | what | figure | lowest to highest | bar | |", "|---|---|---|---|---|---|"]
    for bar in bars:
        figure = "" if bar.figure is None else f"{bar.figure:.2f}"
        lines.append(f"| {bar.point} | {bar.what} | {figure} | {bar.range} | {bar.wanted} "
                     f"| {bar.word} |")
    met = sum(bar.met is True for bar in bars)
    missed = sum(bar.met is False for bar in bars)
    absent = sum(bar.figure is None and bar.wanted != "" for bar in bars)
    lines.append(f"\n{met} bars met, {missed} not met, {absent} not measured.")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as file:
        bars = judge(json.load(file))
    print(markdown(bars), end="")
    sys.exit(any(bar.wanted and bar.met is not True for bar in bars))


if __name__ == "__main__":
    main()
