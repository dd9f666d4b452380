"""Aggregates the samples of many repetitions into rows: medians, ranges and ratios.

The ratio of two rows is computed within each repetition, because the machine's speed drifts and the
drift affects both samples of a repetition alike.
"""

import collections
import json
import statistics

# The fields that identify a row.
KEYS = ("case", "size", "workers", "servers", "transport", "encoding", "variant")
# The first fields of each row of --json, in this order.
FIELDS = ("case", "size", "workers", "servers", "gbps", "ratio_to_raw_tcp", "cpu_s_per_gb",
          "p50_us", "p99_us", "rss_mb")
# Reported as medians, if the samples contain them.
FIGURES = ("gbps", "cpu_s_per_gb", "p50_us", "p99_us", "rss_mb", "calls_per_s", "fairness",
           "median_us", "ceiling_mb", "seconds", "gradient_gbps", "of_limit",
           "times_torch")
# Also stored for each repetition.
COMPARED = ("gbps", "cpu_s_per_gb", "p50_us")


def key_of(sample):
    return tuple(sample.get(key) for key in KEYS)


def median(samples, field):
    values = [sample[field] for sample in samples if sample.get(field) is not None]
    return statistics.median(values) if values else None


def each_repetition(samples, field):
    """Returns the field's values in the order of the repetitions; None if missing."""
    values = {sample["repetition"]: sample.get(field) for sample in samples}
    return [values.get(repetition) for repetition in range(max(values) + 1)]


def ratios(row, other, field="gbps"):
    """Returns the ratios for the repetitions that both rows contain."""
    pairs = zip(row.get(f"{field}_each", []), other.get(f"{field}_each", []))
    return [mine / theirs for mine, theirs in pairs if mine is not None and theirs]


def ratio(row, other, field="gbps"):
    """Returns the median of the ratios, or None without ratios."""
    each = ratios(row, other, field)
    return statistics.median(each) if each else None


def aggregate(samples):
    """Returns the rows, in the order of their first samples."""
    groups = collections.OrderedDict()
    for sample in samples:
        groups.setdefault(key_of(sample), []).append(sample)
    rows = {key: row_of(key, group) for key, group in groups.items()}
    raw = {key[1]: row for key, row in rows.items() if key[0] == "raw_tcp" and key[2] == 1}
    for key, row in rows.items():
        yardstick = rows.get(("link_raw_tcp", *key[1:5], "float32", key[6]), {}) \
            if key[0].startswith("link_") else raw.get(key[1], {})
        row["ratio_to_raw_tcp"] = rounded(ratio(row, yardstick))
        row["cpu_by_raw_tcp"] = rounded(ratio(row, yardstick, "cpu_s_per_gb"))
        if key[0] == "train_step" and key[6].endswith("/worker"):
            alone = rows.get((*key[:3], 0, *key[4:6], key[6].replace("/worker", "/alone")), {})
            row["times_alone"] = rounded(ratio(row, alone, "p50_us"))
    return list(rows.values())


def row_of(key, group):
    """Returns the row of one key's samples, without the comparisons with other rows."""
    row = dict.fromkeys(FIELDS)
    row.update(zip(KEYS, key))
    for field in FIGURES:
        value = median(group, field)
        if value is not None:
            row[field] = value
    for field in COMPARED:
        values = [value for value in each_repetition(group, field) if value is not None]
        if values:
            row[f"{field}_min"], row[f"{field}_max"] = min(values), max(values)
            row[f"{field}_each"] = each_repetition(group, field)
    if group[-1].get("congestion_control"):
        row["congestion_control"] = group[-1]["congestion_control"]
    row["repetitions"] = len(group)
    row["throttled"] = sum(sample["throttled"] for sample in group)
    return {field: rounded(value) for field, value in row.items()}


def rounded(value):
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def write_json(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
