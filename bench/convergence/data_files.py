"""Reads training data: MNIST's IDX files, a CSV file with a header."""

import csv
import gzip
import os

import numpy


def idx(directory, name):
    """uint8 array of the IDX file `name` in `directory`, plain or gzip."""
    path = os.path.join(directory, name)
    with (open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb")) as file:
        content = file.read()
    shape = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(content[3])]
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def table(path):
    """(float32 inputs, float32 targets) of a CSV file with a header: the last column is the target."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    values = numpy.array(rows, numpy.float32)
    return values[:, :-1], values[:, -1:]


def drawn_table(rows=4000, columns=8):
    """A regression to learn without a file: smooth, with products, and noise of variance 0.01."""
    draw = numpy.random.default_rng(20)
    x = draw.standard_normal((rows, columns))
    y = numpy.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]**2 + 0.3 * x[:, 4]
    y = y / y.std() + 0.1 * draw.standard_normal(rows)
    return x.astype(numpy.float32), y[:, None].astype(numpy.float32)

