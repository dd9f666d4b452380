#!/usr/bin/python3
"""Compares real runs with the virtual clock: compare.py virtual.jsonl real.jsonl. Exits 1 if they disagree.

Compares contestants that both files have at the same rate, with a whole batch for each worker. The time to the end,
divided by DDP's in the same scenario, may differ by 15 %, and the final accuracy by 0.2 points. Medians over seeds.
"""

import sys

import rows_file
import summary

TIMES, POINTS = 1.15, 0.2


def ends(rows):
    """{(optimizer, rate, scenario): {contestant: (seconds, accuracy)}}."""
    found = {}
    rows = [row for row in rows if row["task"] == "convnet" and not row.get("global_batch")]
    grouped = summary.groups(rows, "optimizer", "rate", "scenario", "contestant")
    for (optimizer, rate, scenario, name), those in grouped.items():
        seconds = summary.figure([row["final"]["seconds"] for row in those]).median
        found.setdefault((optimizer, f"{rate:g}", scenario), {})[name] = seconds, summary.final(those).median
    return found


def compared(virtual, real):
    """(line of the table, whether they agree) for each contestant that both have, but DDP's own time."""
    for place, contestants in real.items():
        other = virtual.get(place, {})
        for name in contestants:
            if name not in other or "ddp" not in contestants or "ddp" not in other:
                continue
            ratios = [found[name][0] / found["ddp"][0] for found in (other, contestants)]
            points = 100 * (contestants[name][1] - other[name][1])
            agree = max(ratios) <= TIMES * min(ratios) and abs(points) <= POINTS
            yield (f"| {', '.join(place)} | {name} | {ratios[0]:.2f} | {ratios[1]:.2f} "
                   f"| {100 * other[name][1]:.2f} | {100 * contestants[name][1]:.2f} "
                   f"| {'yes' if agree else 'NO'} |"), agree


def main():
    virtual, real = (ends(rows_file.read(path)) for path in sys.argv[1:])
    print("| where | contestant | end by DDP's: virtual | real | final accuracy %: virtual | real | agree |")
    print("|---|---|---|---|---|---|---|")
    verdicts = []
    for line, agree in compared(virtual, real):
        print(line)
        verdicts.append(agree)
    sys.exit(0 if verdicts and all(verdicts) else 1)


if __name__ == "__main__":
    main()
