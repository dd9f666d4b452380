#!/usr/bin/python3
"""Charts of virtual_time.py's rows: plots.py rows.jsonl FOLDER.

TASK_OPTIMIZER_accuracy.png: accuracy over time, a panel a scenario, band = range over seeds.
TASK_OPTIMIZER_time_to_980.png: time to a target by DDP's, as bars.
"""

import os
import sys

import rows_file
import summary
import tables


def over_time(pyplot, rows, path):
    scenarios = summary.groups(rows, "scenario")
    _, panels = pyplot.subplots(1, len(scenarios), figsize=(5.5 * len(scenarios), 4), squeeze=False)
    for axes, ((scenario,), those) in zip(panels[0], scenarios.items()):
        for (name,), seeds in summary.groups(those, "contestant").items():
            # Seeds look at the same numbers of samples, but at slightly different times.
            looks = list(zip(*(row["looks"] for row in seeds)))
            times = [summary.figure([look["seconds"] for look in at]).median for at in looks]
            figures = [summary.figure([100 * look["accuracy"] for look in at]) for at in looks]
            drawn, = axes.plot(times, [each.median for each in figures], label=name, linewidth=1.2)
            axes.fill_between(times, [each.low for each in figures], [each.high for each in figures],
                              alpha=0.2, color=drawn.get_color(), linewidth=0)
        axes.set_title(scenario)
        axes.set_xlabel("seconds of the virtual clock")
        axes.set_ylabel("test accuracy, %")
        best = max(100 * row["final"]["accuracy"] for row in those)
        axes.set_ylim(best - 4, best + 0.3)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize="small", loc="lower right")
    pyplot.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close()


def by_ddp(pyplot, rows, target, path):
    bars = []
    for (scenario,), those in summary.groups(rows, "scenario").items():
        found = summary.groups(those, "contestant")
        ddp = summary.to_target(found.get(("ddp",), []), target, "seconds").median
        for (name,), seeds in found.items():
            time = summary.to_target(seeds, target, "seconds").median
            if ddp and time and name != "ddp":
                bars.append((f"{name}\n{scenario}", time / ddp))
    if not bars:
        return
    _, axes = pyplot.subplots(figsize=(7, 1 + 0.45 * len(bars)))
    drawn = axes.barh([name for name, _ in bars], [value for _, value in bars])
    axes.bar_label(drawn, fmt="%.2f", fontsize="small")
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_title(f"Time to {100 * target:g} % by DDP's")
    pyplot.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close()


def main():
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    *paths, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    rows = [row for path in paths for row in rows_file.read(path)
            if not row["validation"] and row["task"] in tables.TARGETS]
    for (task, optimizer), those in summary.groups(rows, "task", "optimizer").items():
        over_time(pyplot, those, os.path.join(folder, f"{task}_{optimizer}_accuracy.png"))
        for target in tables.TARGETS[task]:
            by_ddp(pyplot, those, target,
                   os.path.join(folder, f"{task}_{optimizer}_time_to_{1000 * target:.0f}.png"))


if __name__ == "__main__":
    main()
