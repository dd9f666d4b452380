"""Samples of many repetitions become rows: medians, ranges and ratios."""

import collections
import json
import statistics

# What tells rows apart.
KEYS = ("case", "size", "workers", "servers", "transport", "encoding", "variant")
# The fields that every row of --json has, first and in this order.
FIELDS = ("case", "size", "workers", "servers", "gbps", "ratio_to_raw_tcp", "cpu_s_per_gb",
          "p50_us", "p99_us", "rss_mb")
# Told by their medians where a sample has them.
FIGURES = ("gbps", "cpu_s_per_gb", "p50_us", "p99_us", "rss_mb", "calls_per_s", "fairness",
           "median_us", "ceiling_mb", "seconds", "gradient_gbps", "of_limit",
           "times_torch")


def key_of(sample):
    return tuple(sample.get(key) for key in KEYS)


def median(samples, field):
    values = [sample[field] for sample in samples if sample.get(field) is not None]
    return statistics.median(values) if values else None


def paired_ratio(samples, others, field):
    """Median over the repetitions that both have: neighbours in time, so drift cancels out."""
    by_repetition = {other["repetition"]: other.get(field) for other in others}
    ratios = [sample[field] / by_repetition[sample["repetition"]] for sample in samples
              if sample.get(field) is not None and by_repetition.get(sample["repetition"])]
    return statistics.median(ratios) if ratios else None


def aggregate(samples):
    """Rows in the order in which their first samples came."""
    groups = collections.OrderedDict()
    for sample in samples:
        groups.setdefault(key_of(sample), []).append(sample)
    raw = {key[1]: group for key, group in groups.items() if key[0] == "raw_tcp" and key[2] == 1}
    rows = []
    for key, group in groups.items():
        row = dict.fromkeys(FIELDS)
        row.update(zip(KEYS, key))
        for field in FIGURES:
            value = median(group, field)
            if value is not None:
                row[field] = value
        yardstick = groups.get(("link_raw_tcp", *key[1:5], "float32", key[6])) \
            if key[0].startswith("link_") else raw.get(row["size"])
        if yardstick and row["gbps"]:
            row["ratio_to_raw_tcp"] = paired_ratio(group, yardstick, "gbps")
        for field in ("gbps", "p50_us"):
            values = [sample[field] for sample in group if sample.get(field) is not None]
            if values:
                row[f"{field}_min"], row[f"{field}_max"] = min(values), max(values)
        if group[-1].get("congestion_control"):
            row["congestion_control"] = group[-1]["congestion_control"]
        row["repetitions"] = len(group)
        row["throttled"] = sum(sample["throttled"] for sample in group)
        if key[0] == "train_step" and key[6].endswith("/worker"):
            alone = groups.get((*key[:3], 0, *key[4:6], key[6].replace("/worker", "/alone")), [])
            row["times_alone"] = paired_ratio(group, alone, "p50_us")
        rows.append({field: rounded(value) for field, value in row.items()})
    return rows


def rounded(value):
    return float(f"{value:.5g}") if isinstance(value, float) else value


def write_json(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
