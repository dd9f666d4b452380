"""A run leaves a model that Python loads strictly and that is as good there as its report says.

    python_model_test.py PSCTL PS_SERVER PS_WORKER

With Debian's torch alone: its safetensors library is no Debian package, so the file is read here by
the format's public definition.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import torch

# 28 x 28 images of ten classes: a bar whose row is the class, over noise that sometimes hides it.
SAMPLES = {"train": 2000, "t10k": 500}
DTYPES = {"F32": torch.float32, "I64": torch.int64}


def write_idx(folder, part, samples):
    torch.manual_seed(samples)
    labels = torch.arange(samples) % 10
    images = torch.randint(0, 200, (samples, 28, 28))
    for image, label in zip(images, labels):
        image[2 * label + 4] += 40
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4I", 0x803, samples, 28, 28))
        file.write(bytes(images.to(torch.uint8).flatten().tolist()))
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2I", 0x801, samples))
        file.write(bytes(labels.tolist()))
    return images, labels


def read_safetensors(path):
    """The metadata, and the state_dict."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = bytearray(file.read())
    metadata = header.pop("__metadata__")
    state = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        elements = torch.frombuffer(bytearray(body[begin:end]), dtype=DTYPES[tensor["dtype"]])
        state[name] = elements.reshape(tensor["shape"])
    return metadata, state


class ConvNet(torch.nn.Module):
    """The twin of worker/models/convnet.h."""

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


def main(psctl, server, worker):
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    images, labels = {part: write_idx(folder, part, n) for part, n in SAMPLES.items()}["t10k"]
    job = f"{folder}/job.textproto"
    with open(job, "w", encoding="utf-8") as file:
        file.write('name: "bars" model { name: "convnet" } data { source: "idx" } '
                   'training { epochs: 2 } '
                   'optimizer { sgd {} learning_rate: 0.02 } consistency { mode: SYNC }')
    run = f"{folder}/run"
    subprocess.run([psctl, "run", f"--job={job}", f"--data={folder}", "--servers=1", "--workers=2",
                    f"--dir={run}", f"--server_binary={server}", f"--worker_binary={worker}"],
                   check=True)
    with open(f"{run}/report.json", encoding="utf-8") as file:
        report = json.load(file)

    metadata, state = read_safetensors(f"{run}/model.safetensors")
    net = ConvNet()
    net.load_state_dict(state, strict=True)
    net.eval()
    # What the data source did to the input.
    mean = json.loads(metadata["input_mean"])[0]
    deviation = json.loads(metadata["input_deviation"])[0]
    with torch.no_grad():
        output = net((images[:, None].float() / 255 - mean) / deviation)
    accuracy = (output.argmax(1) == labels).double().mean().item()
    loss = torch.nn.functional.cross_entropy(output, labels).item()
    print(f"report: accuracy {report['result']['accuracy']}, loss {report['result']['loss']}")
    print(f"Python: accuracy {accuracy}, loss {loss}")
    assert report["finished"] and 0.2 < accuracy
    assert accuracy == report["result"]["accuracy"]
    assert abs(loss - report["result"]["loss"]) < 1e-4 * loss
    assert float(metadata["test_accuracy"]) == accuracy


main(*sys.argv[1:])
