#!/usr/bin/python3
"""Draws accuracy over time from virtual_time.py's rows: a panel for each scenario, a line for each contestant.

  plots.py rows.jsonl --optimizer=adam --global_batch --scenario=none,flaky --contestant=ddp,async_batch --svg=FILE

Lines are medians over the seeds that all contestants of a panel have, bands their range. The SVG has no background:
its colours suit light and dark pages.
"""

import argparse

import rows_file
import summary

LABELS = {"ddp": "DDP", "async_batch": "ASYNC", "sync_balanced": "SYNC", "buf": "no worker waits"}
TITLES = {"none": "All workers equal", "one_slow": "One worker 4 times slower",
          "pauses": "One worker stands still 2 s in 10",
          "flaky": "Each stands still 1 s in 8, at random", "changing": "Speeds change every minute",
          "dies": "One worker dies for 10 s", "two_of_eight_slow": "Two of eight 4 times slower"}
COLORS = ("#c9690f", "#2f7fe0", "#2c9a5b", "#a35bd0")
GREY = "#7b848f"
COLUMNS, WIDTH, HEIGHT = 2, 360, 230  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 26, 34  # inside it


def text(x, y, content, anchor="start", color=GREY, size=11, more=""):
    return (f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" font-size="{size}" text-anchor="{anchor}"{more}>'
            f'{content}</text>')


def shape(kind, points, more):
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<{kind} points="{joined}" {more}/>'


def curve(rows):
    """(seconds, median, lowest, highest accuracy in percent) at each look. Seeds look after the same samples."""
    for looks in zip(*(row["looks"] for row in rows)):
        accuracy = summary.figure([100 * look["accuracy"] for look in looks])
        yield summary.figure([look["seconds"] for look in looks]).median, accuracy.median, accuracy.low, accuracy.high


def panel(title, found, low, high, clip):
    """SVG lines of one scenario; `found`: {contestant: rows}."""
    curves = {name: list(curve(rows)) for name, rows in found.items()}
    longest = 1.02 * max(points[-1][0] for points in curves.values())

    def x(seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / longest

    def y(accuracy):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - accuracy) / (high - low)
    yield text(LEFT, 16, title, size=13, more=' font-weight="600"')
    for percent in range(int(low), int(high) + 1):
        yield shape("polyline", [(LEFT, y(percent)), (WIDTH - RIGHT, y(percent))],
                    f'stroke="{GREY}" stroke-opacity="0.35"')
        yield text(LEFT - 5, y(percent) + 4, f"{percent} %", "end")
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if longest / step <= 6)
    for seconds in range(0, int(longest) + 1, step):
        yield text(x(seconds), HEIGHT - BOTTOM + 15, f"{seconds} s", "middle")
    yield f'<g clip-path="url(#{clip})">'
    for color, (name, points) in zip(COLORS, curves.items()):
        yield shape("polygon", [(x(at), y(most)) for at, _, _, most in points] +
                    [(x(at), y(least)) for at, _, least, _ in reversed(points)], f'fill="{color}" fill-opacity="0.16"')
        dashes = ' stroke-dasharray="5 3"' if name == "ddp" else ""
        yield shape("polyline", [(x(at), y(middle)) for at, middle, _, _ in points],
                    f'fill="none" stroke="{color}" stroke-width="2"{dashes}')
    yield "</g>"
    for i, (name, points) in enumerate(curves.items()):
        at, middle = points[-1][:2]
        yield f'<circle cx="{x(at):.1f}" cy="{y(middle):.1f}" r="3.5" fill="{COLORS[i]}"/>'
        ratios = [row["final"]["seconds"] / ddp["final"]["seconds"]
                  for row, ddp in zip(found[name], found.get("ddp", ()))]
        end = f"{LABELS.get(name, name)}: {100 * summary.final(found[name]).median:.2f} %"
        if ratios and name != "ddp":
            end += f" in {summary.figure(ratios).median:.2f} of the time"
        yield text(WIDTH - RIGHT - 4, HEIGHT - BOTTOM - 10 - 16 * (len(curves) - 1 - i), end, "end", COLORS[i])


def svg(rows, scenarios, contestants, low, high):
    panels = {}
    for scenario in scenarios:
        found = {name: {row["seed"]: row for row in rows if (row["scenario"], row["contestant"]) == (scenario, name)}
                 for name in contestants}
        shared = sorted(set.intersection(*(set(seeds) for seeds in found.values())))
        if not shared:
            raise SystemExit(f"{scenario}: no seed has rows of all of {', '.join(contestants)}")
        panels[scenario] = {name: [seeds[seed] for seed in shared] for name, seeds in found.items()}
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {lines * HEIGHT}" '
           f'font-family="system-ui, Helvetica, Arial, sans-serif" role="img">')
    yield "<title>Test accuracy over time, " + ", ".join(LABELS.get(name, name) for name in contestants) + "</title>"
    yield (f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
           f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>')
    for i, (scenario, found) in enumerate(panels.items()):
        yield f'<g transform="translate({i % columns * WIDTH},{i // columns * HEIGHT})">'
        yield from panel(TITLES.get(scenario, scenario), found, low, high, "plot")
        yield "</g>"
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--task", default="convnet")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--global_batch", action="store_true")
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--contestant", default="ddp,async_batch")
    parser.add_argument("--range", default="95-99", help="of the accuracy shown, in percent")
    parser.add_argument("--svg", required=True, help="file to write")
    arguments = parser.parse_args()
    rows = [row for path in arguments.rows for row in rows_file.read(path)
            if (row["task"], row["optimizer"]) == (arguments.task, arguments.optimizer) and
            row.get("global_batch", False) == arguments.global_batch and "jitter" not in row]
    low, high = map(float, arguments.range.split("-"))
    drawn = svg(rows, arguments.scenario.split(","), arguments.contestant.split(","), low, high)
    with open(arguments.svg, "w", encoding="utf-8") as file:
        file.write("\n".join(drawn) + "\n")


if __name__ == "__main__":
    main()
