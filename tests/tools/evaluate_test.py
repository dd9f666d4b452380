"""psctl evaluate and psctl predict say of a trained model what its run has said.

    evaluate_test.py PSCTL PROGRAM JOB
"""

import csv
import json
import os
import struct
import subprocess
import sys
import tempfile


def metadata(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))["__metadata__"]


def main(psctl, program, job):
    folder = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "run")
    subprocess.run([program, "--local", f"--job={job}", f"--dir={folder}"], check=True,
                   stdout=subprocess.DEVNULL)

    def ask(command, model, *flags):
        asked = subprocess.run(
            [psctl, command, f"--model={model}", f"--worker_binary={program}", *flags], check=True,
            stdout=subprocess.PIPE, text=True)
        return asked.stdout

    for name in "model", "best":
        path = f"{folder}/{name}.safetensors"
        told = metadata(path)
        got = json.loads(ask("evaluate", path, "--json"))
        assert got["samples"] == int(told["test_samples"]), (got, told)
        assert got["loss"] == float(told["test_loss"]), (got, told)
        assert got["metrics"] == {"accuracy": float(told["test_accuracy"])}, (got, told)

    # A run's folder is its last model, and so is its last checkpoint.
    final = json.loads(ask("evaluate", folder, "--json"))
    last = sorted(name for name in os.listdir(folder) if name.startswith("checkpoint-"))[-1]
    checkpoint = json.loads(ask("evaluate", f"{folder}/{last}", "--json"))
    # And so is what psctl writes for torch.load.
    pickled = os.path.join(folder, "exported.pt")
    subprocess.run([psctl, "export", f"--dir={folder}", f"--out={pickled}"], check=True, stdout=subprocess.DEVNULL)
    exported = json.loads(ask("evaluate", pickled, "--json"))
    for figures in final, checkpoint, exported:
        del figures["model"]
    assert final == checkpoint == exported, (final, checkpoint, exported)

    rows = list(csv.DictReader(ask("predict", folder).splitlines()))
    assert len(rows) == final["samples"]
    assert [int(row["sample"]) for row in rows] == list(range(len(rows)))
    right = sum(float(row["predicted"]) == float(row["target"]) for row in rows)
    assert right / len(rows) == final["metrics"]["accuracy"]
    first = [float(rows[0][f"output_{i}"]) for i in range(10)]
    assert int(rows[0]["predicted"]) == first.index(max(first))

    lines = os.path.join(folder, "answers.json")
    ask("predict", folder, "--json", f"--out={lines}", "--on_training_data")
    with open(lines, encoding="utf-8") as file:
        answers = [json.loads(line) for line in file]
    assert len(answers) == 6000 and len(answers[0]["output"]) == 10

    print("evaluate and predict agree with the run")


main(*sys.argv[1:])
