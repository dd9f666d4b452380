#!/usr/bin/env python3
"""Loads a run's model into a Python copy of the ConvNet and compares it with the run's report.

    deploy/check_model.py RUN_FOLDER IDX_FOLDER

IDX_FOLDER contains the test set that evaluated the run: t10k-images-idx3-ubyte and its labels. Exits with 1
if a tensor is missing, unexpected or has a wrong shape, or if the accuracy differs from the report. Reads
model.safetensors with Python's safetensors if installed (Debian 12 does not package it), otherwise by the
format's public definition.
"""

import json
import struct
import sys

import torch

try:
    import safetensors
    import safetensors.torch
except ImportError:
    safetensors = None

DTYPES = {"F32": torch.float32, "I64": torch.int64}


class ConvNet(torch.nn.Module):
    """Python copy of torchps/worker/models/vision_models.h."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 5, padding=2)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.conv2 = torch.nn.Conv2d(16, 32, 5, padding=2)
        self.bn2 = torch.nn.BatchNorm2d(32)
        self.fc = torch.nn.Linear(32 * 7 * 7, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def read_model(path):
    """Returns the metadata and the state_dict."""
    if safetensors is not None:
        with safetensors.safe_open(path, framework="pt") as file:
            return file.metadata(), safetensors.torch.load_file(path)
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = file.read()
    metadata = header.pop("__metadata__")
    state = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        elements = torch.frombuffer(bytearray(body[begin:end]), dtype=DTYPES[tensor["dtype"]])
        state[name] = elements.reshape(tensor["shape"])
    return metadata, state


def read_idx(folder):
    """Returns images [N, 1, H, W] with values 0 to 255, and labels [N]."""
    with open(f"{folder}/t10k-images-idx3-ubyte", "rb") as file:
        _, count, height, width = struct.unpack(">4I", file.read(16))
        images = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    with open(f"{folder}/t10k-labels-idx1-ubyte", "rb") as file:
        file.read(8)
        labels = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    return images.reshape(count, 1, height, width).float(), labels


def main(run, idx):
    with open(f"{run}/report.json", encoding="utf-8") as file:
        report = json.load(file)
    metadata, state = read_model(f"{run}/model.safetensors")
    net = ConvNet()
    net.load_state_dict(state, strict=True)
    net.eval()
    images, labels = read_idx(idx)
    # The normalization of the data source.
    mean = json.loads(metadata["input_mean"])[0]
    deviation = json.loads(metadata["input_deviation"])[0]
    with torch.no_grad():
        output = net((images / 255 - mean) / deviation)
    accuracy = (output.argmax(1) == labels).double().mean().item()
    loss = torch.nn.functional.cross_entropy(output, labels).item()
    result = report["result"]
    print(f"report: accuracy {result['accuracy']}, loss {result['loss']}")
    print(f"Python: accuracy {accuracy}, loss {loss}, "
          f"{'safetensors ' + safetensors.__version__ if safetensors else 'read by the format'}")
    wrong = []
    if not report["finished"]:
        wrong.append("the run has not finished")
    if accuracy != result["accuracy"] or accuracy != float(metadata["test_accuracy"]):
        wrong.append(f"accuracy {accuracy} in Python, {result['accuracy']} in the report, "
                     f"{metadata['test_accuracy']} in the model's metadata")
    if abs(loss - result["loss"]) > 1e-4 * loss:
        wrong.append(f"loss {loss} in Python, {result['loss']} in the report")
    for sentence in wrong:
        print(f"check_model.py: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
