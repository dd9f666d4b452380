#!/usr/bin/env python3
"""Compares the rows of one run with the requirements on the data plane.

  verdict.py FILE.json      prints one line per bar: the figure, the bar, met or not met

Exits 1 if a bar is not met or was not measured.
"""

import json
import statistics
import sys

from link import link_name
from plan import CASES, LINKS
from rows import ratios
from sizes import LARGE, MIB, size_name


class Bar:
    """A figure and the requirement on it: at least `least`, or at most `most`. The figure is the median of `each`, a
    list over repetitions or a single value; None if not measured."""

    def __init__(self, question, what, each, least=None, most=None):
        self.question = question
        self.what = what
        self.each = each if isinstance(each, list) else [each] if each is not None else []
        self.figure = statistics.median(self.each) if self.each else None
        self.least = least
        self.most = most

    @property
    def met(self):
        """None if there is no figure or no requirement."""
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
        """The lowest and highest repetition, as text."""
        return f"{min(self.each):.2f} to {max(self.each):.2f}" if len(self.each) > 1 else ""

    @property
    def word(self):
        if self.figure is None:
            return "not measured"
        return {True: "met", False: "**not met**", None: "stated"}[self.met]


class Rows:
    """Finds rows by their fields. Defaults: one worker, one server, TCP, float32, no variant."""

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
    """No bars here, because they would depend on one machine's loopback, which the product avoids."""
    for size in (MIB, *LARGE):
        raw = rows.find("raw_tcp", size=size)
        for case in CASES:
            yield Bar("TCP", f"{case} {size_name(size)}: of raw TCP",
                      ratios(rows.find(case, size=size), raw))


def one_host(rows):
    for size in LARGE:
        push = rows.find("push_apply", size=size, transport="shm")
        yield Bar("one host", f"shm push_apply {size_name(size)}: of the same apply in-process",
                  ratios(push, rows.find("in_process_apply", size=size, transport="memory")),
                  least=0.85)
        yield Bar("one host", f"shm pull {size_name(size)}: of memcpy",
                  ratios(rows.find("pull", size=size, transport="shm"),
                         rows.find("memcpy", size=size, transport="memory")), least=0.8)


def links(rows):
    for gbits, delay_ms in LINKS:
        variant = link_name(gbits, delay_ms)
        raw = rows.find("link_raw_tcp", variant=variant)
        for case in ("push_apply", "pull"):
            row = rows.find(f"link_{case}", variant=variant)
            yield Bar("link", f"{case} over {variant}: of raw TCP", ratios(row, raw))
            yield Bar("link", f"{case} over {variant}: CPU s/GB by raw TCP's",
                      ratios(row, raw, "cpu_s_per_gb"), most=2.0)


def kernels(rows):
    for row in rows.all("apply_kernel"):
        optimizer = row["variant"].removeprefix("cold/").split("/")[0]
        told = row["variant"].startswith("cold/") and "threads:" in row["variant"]
        if told and optimizer in ("sgd", "sgd_momentum", "adamw"):
            yield Bar("kernels", f"{row['variant']}: of the memory bandwidth limit", row.get("of_limit"),
                      least=0.85)
        if row.get("times_torch") is not None:
            yield Bar("kernels", f"{optimizer}: times torch::optim", row["times_torch"],
                      least=2.0 if optimizer == "adam" else None)


def encodings(rows):
    variant = link_name(*LINKS[0])
    for encoding, least in (("bfloat16", 1.8), ("int8", 3.0), ("top_k", None)):
        yield Bar("encodings", f"{encoding} push over {variant}: elements/s by float32's",
                  ratios(rows.find("link_push_apply", encoding=encoding, variant=variant),
                         rows.find("link_push_apply", variant=variant)), least=least)


def train_steps(rows):
    for row in rows.all("train_step"):
        if not row["variant"].endswith("/worker"):
            continue
        model, place, _ = row["variant"].split("/")
        judged = place == "own_core" and model in ("resnet18", "convnet")
        yield Bar("training step", f"{model}, {place}: a worker's step by the same loop's alone",
                  row.get("times_alone"), most=1.05 if judged else None)


def memory(rows):
    for row in rows.all("memory"):
        seconds = row.get("seconds", 0)
        yield Bar("memory", f"{row['transport']}: most RSS in {seconds:.0f} s by its ceiling of "
                  f"{row['ceiling_mb']:.0f} MB", row["rss_mb"] / row["ceiling_mb"], most=1.0)


def gloo(rows):
    other = rows.find("gloo_all_reduce", size=100 * MIB, workers=2, servers=0)
    # One worker's push and pull move as many bytes as all_reduce between two processes. On one host, shared memory is
    # the default.
    for transport, most in (("shm", 0.65), ("tcp", None)):
        yield Bar("gloo", f"{transport} push_pull 100 MiB: time by gloo all_reduce's",
                  ratios(rows.find("push_pull", size=100 * MIB, transport=transport), other,
                         "p50_us"), most=most)


def judge(rows):
    table = Rows(rows)
    return [bar for question in (tcp, one_host, links, encodings, kernels, train_steps, memory, gloo)
            for bar in question(table)]


def markdown(bars):
    lines = ["| question | what | figure | lowest to highest | bar | |", "|---|---|---|---|---|---|"]
    for bar in bars:
        figure = "" if bar.figure is None else f"{bar.figure:.2f}"
        lines.append(f"| {bar.question} | {bar.what} | {figure} | {bar.range} | {bar.wanted} "
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
