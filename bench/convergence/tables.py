#!/usr/bin/python3
"""Rows of virtual_time.py as Markdown: tables.py rows.jsonl..."""

import statistics
import sys

import rows_file
import summary

TARGETS = {"convnet": (0.97, 0.98, 0.984)}


def spread(figure, form, scale=1.0):
    """Median (lowest to highest), and how many never had one."""
    if figure.median is None:
        return "never" if figure.count == 0 else f"never in {figure.never} of {figure.never + figure.count}"
    text = form.format(scale * figure.median)
    if figure.count > 1:
        text += f" ({form.format(scale * figure.low)} to {form.format(scale * figure.high)})"
    return text + (f", never in {figure.never}" if figure.never else "")


def lines(heads, cells):
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for cell in cells:
        yield "| " + " | ".join(cell) + " |"


def with_targets(task, rows):
    """Of one task, optimizer and scenario."""
    found = summary.groups(rows, "contestant")
    soonest = min(summary.figure([row["final"]["seconds"] for row in those]).median
                  for those in found.values())
    heads = ["contestant", "rate", "seeds"]
    for target in TARGETS[task]:
        heads += [f"to {100 * target:g} %: s", "by DDP's", "epochs"]
    heads += ["end, s", "final accuracy %", f"accuracy % at {soonest:.0f} s", "MB", "mean lag",
              "changed nothing %"]
    cells = []
    for (name,), those in found.items():
        cell = [name, f"{those[0]['rate']:g}", str(len(those))]
        for target in TARGETS[task]:
            time = summary.to_target(those, target, "seconds")
            ddp = summary.to_target(found.get(("ddp",), []), target, "seconds")
            used = summary.to_target(those, target, "samples")
            cell += [spread(time, "{:.1f}"),
                     f"{time.median / ddp.median:.2f}" if time.median and ddp.median else "",
                     "" if used.median is None else f"{used.median / those[0]['samples']:.2f}"]
        cell += [spread(summary.figure([row["final"]["seconds"] for row in those]), "{:.1f}"),
                 spread(summary.final(those), "{:.2f}", 100),
                 spread(summary.figure([summary.at_time(row, 1.001 * soonest) for row in those]),
                        "{:.2f}", 100),
                 f"{summary.figure([row['final']['bytes'] for row in those]).median / 1e6:.0f}",
                 f"{summary.mean_lag(those):.2f}", f"{100 * summary.lost_part(those):.1f}"]
        cells.append(cell)
    return lines(heads, cells)


def by_loss(rows):
    found = summary.groups(rows, "contestant")
    alone = summary.final(found[("one_process",)]).median if ("one_process",) in found else None
    cells = []
    for (name,), those in found.items():
        loss = summary.final(those)
        cells.append([name, f"{those[0]['rate']:g}", str(len(those)), spread(loss, "{:.4f}"),
                      f"{loss.median / alone:.3f}" if alone and loss.median else "",
                      spread(summary.figure([row["final"]["seconds"] for row in those]), "{:.1f}"),
                      f"{summary.mean_lag(those):.2f}", f"{100 * summary.lost_part(those):.1f}"])
    return lines(["contestant", "rate", "seeds", "test loss", "by one process", "end, s", "mean lag",
                  "changed nothing %"], cells)


UPDATES = ("updates", "early", "waited %")


def updates(rows):
    """Cells for UPDATES; empty where the rows do not have these figures."""
    if any("updates" not in row for row in rows):
        return [""] * len(UPDATES)
    seconds = sum(row["workers"] * row["final"]["seconds"] for row in rows)
    return [f"{statistics.median(row[name] for row in rows):.0f}" for name in ("updates", "early")] + [
        f"{100 * sum(row['waited'] for row in rows) / seconds:.0f}"]


def by_clock(rows):
    """For the task `clock`, which learns nothing."""
    found = summary.groups(rows, "contestant")
    ends = {name: summary.figure([row["final"]["seconds"] for row in those]) for (name,), those in found.items()}
    cells = []
    for (name,), those in found.items():
        by_ddp = f"{ends[name].median / ends['ddp'].median:.2f}" if "ddp" in ends else ""
        cells.append([name, str(len(those)), spread(ends[name], "{:.1f}"), by_ddp,
                      f"{statistics.median(row['pushes'] for row in those):.0f}",
                      f"{summary.mean_lag(those):.2f}", str(summary.largest_lag(those)),
                      f"{100 * summary.lost_part(those):.1f}",
                      f"{statistics.median(row['stopped'] for row in those):.0f}", *updates(those)])
    return lines(["contestant", "seeds", "end, s", "by DDP's", "pushes", "mean lag", "largest",
                  "changed nothing %", "stopped", *UPDATES], cells)


def lags(rows):
    """The lags of each contestant's pushes, as parts of all, in percent."""
    found = summary.groups(rows, "contestant")
    most = max(int(lag) for row in rows for lag in row["lags"])
    shown = range(min(most, 12) + 1)
    cells = []
    for (name,), those in found.items():
        counts = [0] * (most + 1)
        for row in those:
            for lag, count in row["lags"].items():
                counts[int(lag)] += count
        whole = sum(counts)
        parts = counts[:len(shown) - 1] + [sum(counts[len(shown) - 1:])]
        cells.append([name] + [f"{100 * part / whole:.0f}" if part else "" for part in parts])
    heads = ["lag: % of pushes"] + [str(lag) for lag in shown]
    heads[-1] += " or more" if most > 12 else ""
    return lines(heads, cells) if most else ()


def every_table(rows):
    text = []
    rows = [dict(row, jitter=row.get("jitter"), global_batch=row.get("global_batch")) for row in rows]
    by = ("task", "optimizer", "workers", "scenario", "jitter", "global_batch")
    for (task, optimizer, workers, scenario, jitter, shared), those in summary.groups(rows, *by).items():
        title = (f"{task}, {optimizer}, {scenario}, {workers} workers" + (f", jitter {jitter:g}" if jitter else "") +
                 (", one batch for all" if shared else ""))
        table = with_targets(task, those) if task in TARGETS else by_clock(those) if task == "clock" else by_loss(those)
        text += [f"### {title}", "", *table, "", *lags(those), ""]
    return "\n".join(text)


if __name__ == "__main__":
    print(every_table([row for path in sys.argv[1:] for row in rows_file.read(path)]))
