"""Draws a run's rows as PNG files."""

import os

from sizes import size_name
from tables import ENCODED_LINK

COLUMNS = {"raw_tcp": "raw TCP", "memcpy": "memcpy", "in_process_apply": "apply in-process",
           "gloo_all_reduce": "gloo all_reduce", "push_apply": "push with apply", "pull": "pull",
           "push_pull": "push + pull"}
YARDSTICKS = {"tcp": ("raw_tcp", "gloo_all_reduce"),
              "shm": ("raw_tcp", "memcpy", "in_process_apply"), "tls": ("raw_tcp",)}
PRODUCT = ("push_apply", "pull", "push_pull")


def lines(rows, by, wanted):
    """Returns the rows with these fields as (x, rate, low, high), in ascending order of x."""
    found = [row for row in rows if row["gbps"] and row[by] and
             all(row.get(key) == value for key, value in wanted.items())]
    return [(row[by], row["gbps"], row["gbps"] - row["gbps_min"], row["gbps_max"] - row["gbps"])
            for row in sorted(found, key=lambda row: row[by])]


def add(axes, points, label, style):
    if points:
        xs, rates, below, above = zip(*points)
        axes.errorbar(xs, rates, yerr=(below, above), label=label, fmt=style, capsize=2,
                      linewidth=1.2, markersize=4)


def finish(pyplot, axes, title, xlabel, path, ylabel="GB/s"):
    if os.path.exists(path):
        os.remove(path)  # from an earlier run
    if axes.get_legend_handles_labels()[1]:
        axes.set_title(title)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize="small")
        pyplot.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close()


def draw(rows, folder):
    """Draws sizes_tcp.png, sizes_shm.png, sizes_tls.png, workers.png, encodings.png, links.png and
    train_steps.png.
    """
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no plots: Debian's python3-matplotlib is missing (deploy/setup.sh bench)")
        return
    rows = [row for row in rows if row["gbps"] is not None or row["case"] == "train_step"]
    for transport in ("tcp", "shm", "tls"):
        _, axes = pyplot.subplots()
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        same = {"workers": 1, "servers": 1, "transport": transport, "encoding": "float32",
                "variant": ""}
        product = [(case, lines(rows, "size", {"case": case, **same})) for case in PRODUCT]
        if any(points for _, points in product):
            for case in YARDSTICKS[transport]:
                workers = 2 if case == "gloo_all_reduce" else 1
                add(axes, lines(rows, "size", {"case": case, "workers": workers, "variant": ""}),
                    COLUMNS[case], ".--")
        for case, points in product:
            add(axes, points, COLUMNS[case], "o-")
        ticks = sorted({row["size"] for row in rows if row["size"]})
        axes.set_xticks(ticks, [size_name(size) for size in ticks])
        finish(pyplot, axes, f"One worker, one server, {transport}", "float32 bytes of the model",
               os.path.join(folder, f"sizes_{transport}.png"))
    _, axes = pyplot.subplots()
    axes.set_xscale("log", base=2)
    for transport, style in (("tcp", "o-"), ("shm", "s--")):
        for case in ("push_apply", "pull", "push_pull"):
            points = lines(rows, "workers", {
                "case": case, "size": 16 << 20, "servers": 1, "transport": transport,
                "encoding": "float32", "variant": ""})
            if len(points) > 1:
                add(axes, points, f"{COLUMNS[case]}, {transport}", style)
    finish(pyplot, axes, "All workers together, 16 MiB, one server", "workers",
           os.path.join(folder, "workers.png"))
    bars(pyplot, os.path.join(folder, "encodings.png"),
         [row for row in rows if row["case"] in ("push_apply", "link_push_apply") and
          row["size"] == 16 << 20 and row["workers"] == 1 and row["servers"] == 1 and
          row["transport"] == "tcp" and row["variant"] in ("", ENCODED_LINK)],
         lambda row: f"{row['encoding']}\n{row['variant'] or 'loopback'}",
         "gbps", "Push with apply, 16 MiB, by encoding", "GB/s of float32")
    bars(pyplot, os.path.join(folder, "links.png"),
         [row for row in rows if row["case"] in ("link_push_apply", "link_pull") and
          row["encoding"] == "float32" and row.get("cpu_by_raw_tcp") and row["workers"] == 1],
         lambda row: f"{row['case'].removeprefix('link_')}\n{row['variant']}", "cpu_by_raw_tcp",
         "Over a link, one worker, 16 MiB", "processor time per GB by raw TCP's", log=False)
    bars(pyplot, os.path.join(folder, "train_steps.png"),
         [row for row in rows if row.get("times_alone")],
         lambda row: row["variant"].replace("/worker", "").replace("/", "\n"), "times_alone",
         "A worker's step", "times the same loop alone")


def bars(pyplot, path, rows, name, field, title, ylabel, log=True):
    if not rows:
        return
    _, axes = pyplot.subplots(figsize=(max(5, 1.3 * len(rows)), 4))
    if log and len({row["case"] for row in rows}) > 1:
        axes.set_yscale("log")
    drawn = axes.bar([name(row) for row in rows], [row[field] for row in rows])
    axes.bar_label(drawn, fmt="%.3g", fontsize="small")
    axes.set_title(title)
    axes.set_ylabel(ylabel)
    pyplot.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close()
