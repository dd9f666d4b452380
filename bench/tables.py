"""Formats a run's rows as Markdown: tables by question, and one table of all rows."""

from link import link_name
from plan import LINKS
from sizes import MIB, size_name

# The link on which encodings are measured.
ENCODED_LINK = link_name(*LINKS[0])
PLAIN = {"workers": 1, "servers": 1, "transport": "tcp", "encoding": "float32", "variant": ""}
PRODUCT = (("push + apply", "push_apply"), ("pull", "pull"), ("push + pull", "push_pull"))


def show(row, field, form):
    return "" if not row or row.get(field) is None else form.format(row[field])


def rate(row):
    """Returns GB/s, and the ratio to raw TCP in brackets."""
    if not row or row.get("gbps") is None:
        return ""
    share = row.get("ratio_to_raw_tcp")
    compared = share is not None and row["case"] not in ("raw_tcp", "memcpy", "in_process_apply")
    return f"{row['gbps']:.2f}" + (f" ({share:.2f})" if compared else "")


def times(row):
    if not row or row.get("p50_us") is None:
        return ""
    return f"{row['p50_us']:.0f} / {row['p99_us']:.0f}"


def matrix(title, rows, index, names, columns, prose=""):
    """Returns a table with one line per value of the field `index`. `columns` are tuples of
    heading, wanted fields and a function that formats a row as a cell.

    Omits columns and lines without figures, and tables without lines.
    """
    values = sorted({row[index] for row in rows if row.get(index) is not None})
    lines = []
    for value in values:
        cells = []
        for _, wanted, cell in columns:
            wanted = {**wanted, index: value}
            found = [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]
            cells.append(cell(found[0]) if found else "")
        if any(cells):
            lines.append((names(value), cells))
    kept = [i for i in range(len(columns)) if any(cells[i] for _, cells in lines)]
    if not kept:
        return ""
    text = [f"### {title}\n"] + ([prose + "\n"] if prose else [])
    text.append("| " + " | ".join([index] + [columns[i][0] for i in kept]) + " |")
    text.append("|---" * (len(kept) + 1) + "|")
    text += ["| " + " | ".join([name] + [cells[i] for i in kept]) + " |" for name, cells in lines]
    return "\n".join(text) + "\n\n"


def sizes(rows, transport, yardsticks):
    columns = [(name, {"case": case, "workers": 1, "variant": ""}, rate)
               for name, case in yardsticks]
    columns += [(name, {**PLAIN, "case": case, "transport": transport}, rate)
                for name, case in PRODUCT]
    if not any(row["transport"] == transport and row["case"] == "push_apply" for row in rows):
        return ""
    return matrix(f"One worker, one server, {transport}: GB/s", rows, "size", size_name, columns,
                  "In brackets: of raw TCP's of the same size.")


def processor_time(rows):
    def cpu(row):
        return show(row, "cpu_s_per_gb", "{:.2f}")
    columns = [(name, {"case": case, "workers": 1, "variant": ""}, cpu)
               for name, case in (("raw TCP", "raw_tcp"),)]
    columns += [(f"{name}, {transport}", {**PLAIN, "case": case, "transport": transport}, cpu)
                for transport in ("tcp", "shm") for name, case in PRODUCT]
    return matrix("Processor seconds per GB, all processes", rows, "size", size_name, columns)


def links(rows):
    """Returns a table with a line for each link and number of workers."""
    found = [{**row, "link": f"{row['variant']}, {row['workers']}"} for row in rows
             if row["case"].startswith("link_") and row["encoding"] == "float32"]
    order = list(dict.fromkeys(row["link"] for row in found))
    columns = [("raw TCP: GB/s", {"case": "link_raw_tcp"}, lambda row: show(row, "gbps", "{:.3f}"))]
    for name, case in PRODUCT[:2]:
        wanted = {"case": f"link_{case}"}
        columns += [(f"{name}: of raw TCP", wanted,
                     lambda row: show(row, "ratio_to_raw_tcp", "{:.2f}")),
                    ("CPU s/GB by raw TCP's", wanted,
                     lambda row: show(row, "cpu_by_raw_tcp", "{:.2f}")),
                    ("fairness", wanted, lambda row: show(row, "fairness", "{:.2f}")
                     if row["workers"] > 1 else "")]
    numbered = [{**row, "link, workers": order.index(row["link"])} for row in found]
    return matrix("Over a link: rate, delay each way, workers", numbered, "link, workers",
                  lambda index: order[index], columns)


def workers(rows):
    columns = []
    cases = [("raw TCP", "raw_tcp", "tcp"), ("memcpy", "memcpy", "memory")]
    cases += [(name, case, transport) for transport in ("tcp", "shm") for name, case in PRODUCT]
    for name, case, transport in cases:
        wanted = {**PLAIN, "case": case, "transport": transport, "size": 16 * MIB}
        del wanted["workers"]
        columns.append((f"{name}, {transport}", wanted, lambda row: show(row, "gbps", "{:.2f}")))
        columns.append(("fairness", wanted, lambda row: show(row, "fairness", "{:.2f}")
                        if row["workers"] > 1 else ""))
    return matrix("Workers at once, one server, 16 MiB: GB/s of all together", rows, "workers", str,
                  columns)


def encodings(rows):
    columns = []
    for place, prefix, variant in (("loopback", "", ""),
                                   (ENCODED_LINK, "link_", ENCODED_LINK)):
        for name, case in PRODUCT[:2]:
            wanted = {**PLAIN, "case": prefix + case, "size": 16 * MIB, "variant": variant}
            del wanted["encoding"]
            columns.append((f"{name}, {place}", wanted, lambda row: show(row, "gbps", "{:.3f}")))
    return matrix("Encodings, 16 MiB: GB/s of float32 elements", rows, "encoding", str, columns)


def encoding_ends(rows):
    columns = [(end, {"case": "encoding_end", "variant": end},
                lambda row: show(row, "gbps", "{:.1f}")) for end in ("worker", "server")]
    return matrix("Encodings, one core at either end of a push: GB/s of float32 gradient", rows,
                  "encoding", str, columns, "A worker encodes and keeps what that loses; a server "
                  "checks, decodes and applies by SGD.")


def gloo(rows):
    def milliseconds(row):
        return f"{row['p50_us'] / 1e3:.2f}" if row and row.get("p50_us") is not None else ""
    columns = [("gloo all_reduce, 2 processes", {"case": "gloo_all_reduce"}, milliseconds)]
    columns += [(f"push + pull, {transport}",
                 {**PLAIN, "case": "push_pull", "transport": transport}, milliseconds)
                for transport in ("tcp", "shm")]
    return matrix("Against gloo: median ms per step", rows, "size", size_name, columns)


def train_steps(rows):
    found = []
    for row in rows:
        if row["case"] == "train_step":
            model, place, what = row["variant"].split("/")
            found.append({**row, "model": model, "place": place, "what": what})
    columns = []
    for place, words in (("own_core", "a core each"), ("shared", "two shared cores")):
        for what in ("alone", "worker"):
            columns.append((f"{what}, {words}: ms", {"place": place, "what": what},
                            lambda row: f"{row['p50_us'] / 1e3:.1f}"))
        columns.append(("worker by alone", {"place": place, "what": "worker"},
                        lambda row: show(row, "times_alone", "{:.3f}")))
    return matrix("A training step", found, "model", str, columns)


def memory(rows):
    wanted = {"case": "memory"}
    return matrix("Memory: 32 workers into a server slowed 20 times", rows, "transport", str, [
        ("for", wanted, lambda row: show(row, "seconds", "{:.0f} s")),
        ("most RSS", wanted, lambda row: show(row, "rss_mb", "{:.0f} MB")),
        ("ceiling", wanted, lambda row: show(row, "ceiling_mb", "{:.0f} MB")),
        ("pushes/s", wanted, lambda row: show(row, "calls_per_s", "{:.2f}")),
        ("fairness", wanted, lambda row: show(row, "fairness", "{:.2f}"))])


def kernels(rows):
    wanted = {"case": "apply_kernel"}
    return matrix("Apply kernels", rows, "variant", str, [
        ("GB/s read and written", wanted, lambda row: show(row, "gbps", "{:.1f}")),
        ("of the memory's limit", wanted, lambda row: show(row, "of_limit", "{:.2f}")),
        ("GB/s of gradient", wanted, lambda row: show(row, "gradient_gbps", "{:.1f}")),
        ("times torch::optim", wanted, lambda row: show(row, "times_torch", "{:.2f}"))])


def summary(rows):
    raw = (("raw TCP", "raw_tcp"),)
    memories = (("memcpy", "memcpy"), ("apply in-process", "in_process_apply"))
    return "".join([
        links(rows), sizes(rows, "shm", raw + memories), sizes(rows, "tcp", raw),
        sizes(rows, "tls", raw), processor_time(rows), workers(rows), encodings(rows),
        encoding_ends(rows), gloo(rows), train_steps(rows), memory(rows), kernels(rows)])


def every_row(rows):
    lines = ["| case | size | workers | servers | how | GB/s (range) | of raw TCP | CPU s/GB "
             "| p50 us | p99 us | calls/s | RSS MB | fairness |", "|---" * 13 + "|"]
    for row in rows:
        how = " ".join(str(row[key]) for key in ("transport", "encoding", "variant")
                       if row.get(key) and row[key] != "float32")
        gbps = show(row, "gbps", "{:.3g}")
        if gbps and row["repetitions"] > 1:
            gbps += f" ({row['gbps_min']:.3g} to {row['gbps_max']:.3g})"
        lines.append("| " + " | ".join([
            row["case"], size_name(row["size"]), show(row, "workers", "{}"),
            show(row, "servers", "{}"), how, gbps, show(row, "ratio_to_raw_tcp", "{:.2f}"),
            show(row, "cpu_s_per_gb", "{:.2f}"), show(row, "p50_us", "{:.0f}"),
            show(row, "p99_us", "{:.0f}"), show(row, "calls_per_s", "{:.0f}"),
            show(row, "rss_mb", "{:.0f}"),
            show(row, "fairness", "{:.2f}") if (row["workers"] or 0) > 1 else ""]) + " |")
    return "\n".join(lines) + "\n"
