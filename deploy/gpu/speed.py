"""Compares the step time of a worker with that of a plain loop, for the stage `speed` of deploy/gpu_test.sh.
"""

import statistics

# The goal for a worker's step time, with a local server, relative to the plain loop. It is not reached yet
# (docs/gpus.md, "Measured on an H100"), so a run reports it without failing. A case fails above its own
# `fails_above`, which detects regressions. Lower these values towards the goal.
BAR = 1.03

# The warm-up is longer than a worker needs to decide on prefetching (torchps/worker/loop/prefetch_policy.h).
ON_GPU = {
    "resnet18, batch 128": dict(
        fails_above=1.5, flags=dict(model="resnet18", batch=128, steps=60, warm_up=20)),
    "resnet18, batch 512": dict(
        fails_above=1.3, flags=dict(model="resnet18", batch=512, steps=30, warm_up=15)),
    "transformer of 85 M, batch 32": dict(
        fails_above=2.5, flags=dict(model="transformer", layers=12, heads=12, width=768, batch=32, steps=25,
                                    warm_up=15)),
}
# On a few shared cores, a worker's time is not meaningful.
REHEARSED = {"convnet, batch 8": dict(fails_above=None,
                                      flags=dict(model="convnet", batch=8, steps=20, warm_up=10))}

PLACES = ("alone", "worker", "worker, TCP")


def figure_of(place, found_us, alone_us, batch, has_bar):
    """Returns the figures of a case at one place for gpu.json, from the means of the rounds."""
    milliseconds = statistics.median(found_us) / 1000
    figure = {"ms": round(milliseconds, 3), "rounds": len(found_us),
              "samples_per_second": round(batch / milliseconds * 1000, 1)}
    if place != "alone" and alone_us:
        figure["by_alone"] = round(milliseconds / (statistics.median(alone_us) / 1000), 3)
    if place == "worker" and alone_us and has_bar:
        figure["bar"] = BAR
        figure["bar_is_met"] = figure["by_alone"] <= BAR
    return figure


def line_of(name, figure):
    """Formats a figure: 'resnet18, worker: 20.4 ms, 1.12 of alone; bar 1.03: missed'."""
    text = f"{name}: {figure['ms']:.1f} ms"
    if "by_alone" in figure:
        text += f", {figure['by_alone']:.2f} of alone"
    if "bar" in figure:
        text += f"; bar {figure['bar']}: {'met' if figure['bar_is_met'] else 'missed'}"
    return text


def judge(run, cases, times):
    """Records and prints the results. `times` contains the means of all rounds by case and place."""
    for (case, place), found in times.items():
        if not found:
            continue
        name = f"{case}, {place}"
        most = cases[case]["fails_above"]
        figure = figure_of(place, found, times[case, "alone"], cases[case]["flags"]["batch"],
                           has_bar=most is not None)
        run.figure(name, figure)
        run.say(line_of(name, figure))
        if "bar" in figure:
            run.check(f"{case}: a worker's step takes at most {most} of a plain step",
                      figure["by_alone"] <= most, f"{figure['by_alone']} of it")
