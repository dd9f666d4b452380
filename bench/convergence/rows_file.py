"""The rows of many runs, one JSON object a line. A run whose row is in the file is not repeated."""

import json
import os

KEYS = ("task", "samples", "workers", "epochs", "optimizer", "scenario", "contestant", "rate", "seed", "jitter",
        "global_batch")


def key(row):
    return tuple(row.get(name) for name in KEYS)


class RowsFile:

    def __init__(self, path):
        self.path = path
        self.rows = {key(row): row for row in read(path)} if os.path.exists(path) else {}

    def add(self, row):
        self.rows[key(row)] = row
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]
