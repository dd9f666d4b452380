"""Tests that Python loads a run's model strictly, with the accuracy that the report states.

Tests also that psctl evaluates the file of Python's torch.save.

    python_model_test.py PSCTL PS_SERVER PS_WORKER CHECK_MODEL
"""

import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile

import torch

# 28 x 28 images of ten classes: the row of a bar is the class. Noise sometimes hides the bar.
SAMPLES = {"train": 2000, "t10k": 500}


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


def main(psctl, server, worker, check_model):
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    for part, samples in SAMPLES.items():
        write_idx(folder, part, samples)
    job = f"{folder}/job.textproto"
    with open(job, "w", encoding="utf-8") as file:
        file.write(f'name: "bars" model {{ name: "convnet" }} data {{ source: "idx" path: "{folder}" }} '
                   'training { epochs: 2 } '
                   'optimizer { sgd {} learning_rate: 0.02 }')
    run = f"{folder}/run"
    subprocess.run([psctl, "run", f"--job={job}", "--servers=1", "--workers=2", f"--dir={run}",
                    f"--server_binary={server}", f"--worker_binary={worker}"], check=True)
    subprocess.run([sys.executable, check_model, run, folder], check=True)

    sys.path.insert(0, os.path.dirname(check_model))
    _, state = importlib.import_module("check_model").read_model(f"{run}/model.safetensors")
    torch.save(state, f"{run}/model.pt")
    results = []
    for model in "model.safetensors", "model.pt":
        text = subprocess.run([psctl, "evaluate", f"--model={run}/{model}", f"--worker_binary={worker}", "--json"],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
        results.append(json.loads(text))
    first, second = results
    assert first["samples"] == second["samples"] == SAMPLES["t10k"], results
    assert first["metrics"] == second["metrics"], results
    assert abs(first["loss"] - second["loss"]) <= 1e-6 * first["loss"], results


main(*sys.argv[1:])
