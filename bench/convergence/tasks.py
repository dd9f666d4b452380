"""Tasks: data, network, loss, and the settings of a job that are the same for all contestants."""

import dataclasses
import fnmatch
from typing import Callable

import numpy
import torch
from torch.nn import functional

import data_files
import drawn_text
import networks


@dataclasses.dataclass
class Task:
    name: str
    module: Callable  # () -> a new torch module with random values
    loss: Callable  # (output, targets) -> the mean loss
    train: tuple  # inputs, targets
    test: tuple
    batch_size: int
    epochs: int
    has_accuracy: bool
    warmup_steps: int = 0
    final_fraction: float = 0.0  # of the rate, where the cosine ends
    weight_decay: float = 0.0
    decoupled: bool = False  # AdamW where Adam is asked for
    beta2: float = 0.999
    clip_norm: float = 0.0
    not_decayed: tuple = ()  # patterns of parameters' names
    learns: bool = True  # False: only the clock runs
    global_batch: bool = False  # batch_size is that of all workers together

    def undecayed(self, name):
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.not_decayed)


def mnist(directory):
    def images(prefix):
        pixels = data_files.idx(directory, f"{prefix}-images-idx3-ubyte").astype(numpy.float32) / 255
        labels = data_files.idx(directory, f"{prefix}-labels-idx1-ubyte").astype(numpy.int64)
        return torch.from_numpy(pixels[:, None]), torch.from_numpy(labels)
    return images("train"), images("t10k")


def convnet(directory):
    """deploy/jobs/convnet_mnist.textproto."""
    train, test = mnist(directory)
    return Task("convnet", networks.ConvNet, functional.cross_entropy, train, test, batch_size=32,
                epochs=5, has_accuracy=True, warmup_steps=50, weight_decay=1e-4, not_decayed=("*bias", "*bn*"))


def clock(_):
    """The ConvNet's samples, batches and bytes without gradients: measures a rule's time and lost samples within a
    second."""
    nothing = torch.empty(10_000, 0), torch.empty(10_000, 0)
    return Task("clock", networks.ConvNet, functional.mse_loss, nothing, nothing, batch_size=32, epochs=5,
                has_accuracy=False, learns=False)


def transformer(path):
    """deploy/jobs/transformer_text.textproto; without a file, the product's drawn text."""
    context = 128
    if path:
        with open(path, "rb") as file:
            text = file.read()
    else:
        text = drawn_text.drawn_text()
    tokens = torch.from_numpy(numpy.frombuffer(text, numpy.uint8).astype(numpy.int64))

    def samples(part):
        rows = (len(part) - 1) // context
        return (part[:rows * context].view(rows, context),
                part[1:rows * context + 1].view(rows, context))

    def loss(output, targets):
        return functional.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))

    split = len(tokens) - len(tokens) // 10
    return Task("transformer", networks.Transformer, loss, samples(tokens[:split]),
                samples(tokens[split:]), batch_size=16, epochs=3, has_accuracy=False, warmup_steps=100,
                final_fraction=0.1, weight_decay=0.01, decoupled=True, beta2=0.98, clip_norm=1.0,
                not_decayed=("*bias", "*norm*"))


def regression(path):
    """A table's last column from the others by 64 hidden units; without a file, a drawn table."""
    x, y = data_files.table(path) if path else data_files.drawn_table()
    order = numpy.random.default_rng(1).permutation(len(x))
    x, y = x[order], y[order]
    split = len(x) - len(x) // 5
    x = (x - x[:split].mean(0)) / numpy.maximum(x[:split].std(0), 1e-6)

    def part(chosen):
        return torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen])

    return Task("regression", lambda: networks.perceptron(x.shape[1], 64, y.shape[1]),
                functional.mse_loss, part(slice(split)), part(slice(split, None)), batch_size=32,
                epochs=20, has_accuracy=False, warmup_steps=50)


TASKS = {task.__name__: task for task in (convnet, clock, transformer, regression)}


def make(name, data, samples=None):
    """The task `name` from `data` (a directory or file; "" for drawn data); `samples` keeps so many for training."""
    task = TASKS[name](data)
    task.train = tuple(part[:samples] for part in task.train)
    return task
