"""Tests psctl with users' files: a table with class names, a table for regression, an image folder and tokens. Also
tests the messages for broken files.

    own_files_test.py PSCTL
"""

import array
import csv
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

JOB = """
name: "own" workers: 2
model { name: "linear" }
training { epochs: 4 batch_size: 8 }
optimizer { sgd {} learning_rate: 0.1 }
"""


def metadata(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))["__metadata__"]


def png(height, width, colour):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Trial:
    def __init__(self, psctl):
        self.psctl = os.path.abspath(psctl)
        self.worker = os.path.abspath("torchps/ps_worker")
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.job = self.write("job.textproto", JOB.encode())

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def run(self, name, data, *settings):
        return self.run_with(name, f"--data={data}", "--servers=1", "--workers=2", *(f"--set={each}" for each in settings))

    def run_with(self, name, *flags):
        return subprocess.run(
            [self.psctl, "run", f"--job={self.job}", "--restarts=0", f"--dir={self.path(name)}", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def trained(self, name, data, *settings):
        ran = self.run(name, data, *settings)
        assert ran.returncode == 0, ran.stdout
        with open(self.path(f"{name}/report.json"), encoding="utf-8") as file:
            report = json.load(file)
        return ran.stdout, report, metadata(self.path(f"{name}/model.safetensors"))

    def ask(self, command, name, *words, code=0):
        asked = subprocess.run([self.psctl, command, f"--model={self.path(name)}", *words], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, check=False)
        assert asked.returncode == code, asked
        return asked

    def predicted(self, name, data, *flags):
        return self.ask("predict", name, f"--data={data}", *flags).stdout

    def refused(self, name, data, code, sentence, *settings):
        ran = self.run(name, data, *settings)
        assert ran.returncode == code, (ran.returncode, ran.stdout)
        assert sentence in ran.stdout, ran.stdout


def classes(trial, draw):
    kinds = ["setosa", "versicolor", "Iris, other"]
    rows = ["length,width,kind"]
    for i in range(300):
        kind = i % 3
        quoted = f'"{kinds[kind]}"'
        rows.append(f"{draw.gauss(3 * kind, 0.3)},{draw.gauss(-2 * kind, 0.3)},{quoted}")
    data = trial.write("iris.csv", "\n".join(rows).encode())
    _, report, told = trial.trained("iris", data, "data.source=csv")
    assert report["result"]["accuracy"] > 0.9, report["result"]
    assert json.loads(told["classes"]) == sorted(kinds), told
    answers = list(csv.DictReader(trial.predicted("iris", data).splitlines()))
    assert {answer["target"] for answer in answers} == set(kinds), answers
    right = sum(answer["predicted"] == answer["target"] for answer in answers)
    assert right > 0.9 * len(answers), answers
    line = json.loads(trial.predicted("iris", data, "--json").splitlines()[0])
    assert line["target"] in kinds and line["predicted"] in kinds, line

    trial.write("holes.csv", ("\n".join(rows) + "\n1,NA,setosa\n").encode())
    trial.refused("holes", trial.path("holes.csv"), 2, "holes.csv: line 302, column 1 (width): expected a",
                  "data.source=csv")


def tensors(path):
    """Returns the float32 tensors of a safetensors file as lists of numbers."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    return {name: array.array("f", data[entry["data_offsets"][0]:entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def elsewhere(trial, draw):
    """Predicts on unseen data; Python, with the file's metadata, must find the same."""
    del draw
    folder, told = trial.path("iris"), metadata(trial.path("iris/model.safetensors"))
    with open(trial.path("iris.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = tensors(f"{folder}/model.safetensors")
    weight = next(v for n, v in values.items() if n.endswith("weight"))
    bias = next(v for n, v in values.items() if n.endswith("bias"))
    mean, deviation = json.loads(told["input_mean"]), json.loads(told["input_deviation"])
    names, columns = json.loads(told["classes"]), json.loads(told["input_columns"])

    def predicted(row):
        x = [(float(row[c]) - m) / d for c, m, d in zip(columns, mean, deviation)]
        scores = [b + sum(w * v for w, v in zip(weight[k * 2:k * 2 + 2], x)) for k, b in enumerate(bias)]
        return names[scores.index(max(scores))]

    def ask(command, *words):
        return trial.ask(command, "iris", *words).stdout

    shifted = [{**row, "length": str(float(row["length"]) + 50)} for row in rows]
    for name, some in ("half", rows[:150]), ("shifted", shifted):
        text = "kind,id,width,length\n" + "".join(
            f'"{row["kind"]}",x{i},{row["width"]},{row["length"]}\n' for i, row in enumerate(some))
        path = trial.write(f"{name}.csv", text.encode())
        got = json.loads(ask("evaluate", path, "--json"))
        right = sum(predicted(row) == row["kind"] for row in some)
        assert got["samples"] == len(some) and got["metrics"]["accuracy"] == right / len(some), (name, got, right)
        assert sum(got["confusion"][i][i] for i in range(3)) == right, got
    # The run's flags are not needed again, and the run's own table is evaluated on the test part.
    assert json.loads(ask("evaluate", "--json"))["metrics"]["accuracy"] == float(told["test_accuracy"])
    # A model initialized from another model's weights uses the metadata of its own file for scaling.
    other = trial.write("other.csv", ("broad,long,kind\n" + "".join(
        f'{float(row["width"]) * 10 + 50},{row["length"]},"{row["kind"]}"\n' for row in rows)).encode())
    _, _, tuned = trial.trained("tuned", other, "data.source=csv", f"model.init_from={folder}/model.safetensors")
    asked = trial.ask("evaluate", "tuned", "--json")
    assert json.loads(asked.stdout)["loss"] == float(tuned["test_loss"]), (asked.stdout, tuned)
    os.remove(trial.path("iris.csv"))
    fresh = trial.write("fresh.csv", "".join(f"{row['width']},{row['length']}\n" for row in [
        {"width": "width", "length": "length"}, *rows[:3]]).encode())
    answers = list(csv.DictReader(ask("predict", fresh).splitlines()))
    assert [answer["predicted"] for answer in answers] == [predicted(row) for row in rows[:3]], answers
    assert list(answers[0]) == ["sample", "predicted", *(f"probability_{name}" for name in names)], answers[0]


def numbers(trial, draw):
    rows = ["a;b;sum;difference"]
    for i in range(300):
        a, b = draw.uniform(-1, 1), draw.uniform(-1, 1)
        rows.append(f"{'?' if i % 50 == 0 else a};{b};{a + b};{a - b}")
    data = trial.write("sums.csv", "\n".join(rows).encode())
    said, report, told = trial.trained(
        "sums", data, "data.source=csv", "data.csv.target_column=difference,sum", "data.csv.missing=COLUMN_MEAN",
        "training.epochs=8")
    assert report["result"]["accuracy"] is None and report["result"]["loss"] < 0.1, report["result"]
    assert report["result"]["metrics"]["r2"] > 0.9, report["result"]
    assert "accuracy" not in said, said
    assert json.loads(told["target_columns"]) == ["difference", "sum"], told
    assert "input_missing" in told and json.loads(told["input_columns"]) == ["a", "b"], told
    answers = list(csv.DictReader(trial.predicted("sums", data).splitlines()))
    assert list(answers[0]) == ["sample", "target_difference", "target_sum", "predicted_difference",
                                "predicted_sum"], answers[0]
    near = sum(abs(float(answer["target_sum"]) - float(answer["predicted_sum"])) < 0.2 for answer in answers)
    assert near > 0.8 * len(answers), answers


def solution(matrix, right):
    """Solves linear equations by Gauss-Jordan elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(len(rows)):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i])]
    return [row[-1] for row in rows]


def ridge_r2(train, test):
    """Returns the R2 on `test` of scikit-learn's Ridge(alpha=1) on `train`. The last column is predicted."""
    means = [statistics.fmean(column) for column in zip(*train)]
    centred = [[a - m for a, m in zip(row, means)] for row in train]
    inputs = range(len(means) - 1)
    weights = solution([[sum(row[i] * row[j] for row in centred) + (i == j) for j in inputs] for i in inputs],
                       [sum(row[i] * row[-1] for row in centred) for i in inputs])
    answers = [means[-1] + sum(w * (a - m) for w, a, m in zip(weights, row, means)) for row in test]
    mean = statistics.fmean(row[-1] for row in test)
    return 1 - sum((row[-1] - a)**2 for row, a in zip(test, answers)) / sum((row[-1] - mean)**2 for row in test)


def prices(trial, draw):
    """Learns values near 100,000 at least as well as ridge regression does."""
    def house():
        area, rooms, age = draw.uniform(30, 200), draw.randint(1, 6), draw.uniform(0, 100)
        return area, rooms, age, 20_000 + 900 * area + 5_000 * rooms - 4 * age * area + draw.gauss(0, 8_000)

    tables = {"houses": [house() for _ in range(500)], "sold": [house() for _ in range(200)]}
    for name, rows in tables.items():
        trial.write(f"{name}.csv", "".join(",".join(map(str, row)) + "\n" for row in [
            ("area", "rooms", "age", "price"), *rows]).encode())
    trial.trained("prices", trial.path("houses.csv"), "data.source=csv", "data.csv.target_column=price",
                  "model.name=mlp", "model.hidden=16", "training.epochs=20", "training.batch_size=32",
                  "optimizer.adam.beta2=0.99", "optimizer.learning_rate=0.02")
    asked = trial.ask("evaluate", "prices", trial.path("sold.csv"), "--json")
    r2, ridge = json.loads(asked.stdout)["metrics"]["r2"], ridge_r2(tables["houses"], tables["sold"])
    assert 0.8 < ridge <= r2 < 1, (r2, ridge)


def images(trial, draw):
    colours = {"blue": (10, 20, 200), "red": (200, 20, 10)}
    for part, count in ("train", 20), ("test", 5):
        for name, colour in colours.items():
            for i in range(count):
                shade = [max(0, each + draw.randrange(-9, 9)) for each in colour]
                trial.write(f"flags/{part}/{name}/{i}.png", png(5 + i % 3, 9, shade))
    settings = ["data.source=images", "data.images.height=8"]
    _, report, told = trial.trained("flags_run", trial.path("flags"), *settings)
    assert report["result"]["accuracy"] == 1, report["result"]
    assert json.loads(told["classes"]) == ["blue", "red"], told
    trial.write("flags/train/red/7.png", png(5, 9, (1, 2, 3))[:60])
    trial.refused("broken", trial.path("flags"), 5, "/flags/train/red/7.png: expected a whole PNG image", *settings)
    looked = subprocess.run(
        [trial.psctl, "doctor", f"--job={trial.job}", f"--data={trial.path('flags')}",
         *(f"--set={each}" for each in settings)], stdout=subprocess.PIPE, text=True, check=False)
    assert looked.returncode == 1 and "/flags/train/red/7.png" in looked.stdout, looked.stdout
    os.rename(trial.path("flags/test/red"), trial.path("flags/test/green"))
    trial.refused("other", trial.path("flags"), 2, 'got another, "green"', *settings)


def tokens(trial):
    for name, count in ("train.bin", 3000), ("val.bin", 400):
        numbers_ = array.array("H", [i % 300 for i in range(count)])
        if sys.byteorder == "big":
            numbers_.byteswap()
        trial.write(f"tokens/{name}", numbers_.tobytes())
    settings = ["data.source=tokens", "model.name=transformer", "model.transformer.context=16",
                "model.transformer.width=16", "model.transformer.layers=1", "training.epochs=1"]
    said, report, _ = trial.trained("words", trial.path("tokens"), *settings)
    assert "300 different ones" in said, said
    assert report["result"]["loss"] < 6, report["result"]
    trial.refused("narrow", trial.path("tokens"), 5, "val.bin: expected tokens of 0 to 199, got ",
                  *settings, "data.tokens.vocabulary=200")
    # Text data require only the model file.
    shutil.rmtree(trial.path("tokens"))
    flags = ["--prompt=5 6 7", "--length=40", "--temperature=2", "--seed=3"]
    ids = [int(word) for word in trial.ask("generate", "words", *flags).stdout.split()]
    assert ids[:3] == [5, 6, 7] and len(ids) == 43 and all(0 <= each < 300 for each in ids), ids
    assert trial.ask("generate", "words", *flags).stdout.split() == [str(each) for each in ids]
    for prompt, code, sentence in ("To be", 2, 'as "17 4 250", got "To"'), ("5 300", 2, "vocabulary is 0 to 299"):
        refused = trial.ask("generate", "words", "--prompt", prompt, code=code).stderr
        assert sentence in refused and refused.count("\n") == 1, refused
    assert "does not generate text" in trial.ask("generate", "iris", "x", code=4).stderr


def started(trial):
    """`psctl evaluate --model=RUN` works without the run's flags, however the run was started."""
    draw = random.Random(2)
    table = trial.write("points.csv", "".join(
        f"{draw.gauss(i % 2, 1)},{draw.gauss(0, 1)},{i % 2}\n" for i in range(200)).encode())
    program = trial.write("own_worker", f'#!/bin/sh\nexec "{trial.worker}" "$@"\n'.encode())
    os.chmod(program, 0o700)

    def check(name, *flags):
        ran = trial.run_with(name, "--set=data.source=csv", *flags)
        assert ran.returncode == 0, ran.stdout
        told = metadata(trial.path(f"{name}/model.safetensors"))
        got = json.loads(trial.ask("evaluate", name, "--json").stdout)
        assert got["loss"] == float(told["test_loss"]), (got, told)
        assert got["metrics"]["auc"] == float(told["test_auc"]) > 0.5, (got, told)

    flags = f"--set=data.path={table}", f"--worker_binary={program}"
    check("own_program", *flags)
    check("own_program", *flags, "--resume", "--set=training.epochs=6")
    os.remove(program)
    assert f"{program}, no longer exists" in trial.ask("evaluate", "own_program", code=2).stderr


def other_machines(trial):
    """Servers of --hosts write the model, and psctl copies it into the run's folder."""
    ssh = trial.write("ssh", b'#!/bin/sh\nexec sh -c "$2"\n')
    os.chmod(ssh, 0o700)
    hosts = trial.write("hosts", b"server localhost\nworker localhost\n")
    ran = subprocess.run(
        [trial.psctl, "run", f"--job={trial.job}", f"--hosts={hosts}", f"--ssh={ssh}", "--insecure",
         f"--data={trial.path('points.csv')}", "--set=data.source=csv", f"--dir={trial.path('remote')}"],
        cwd=trial.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    (run,) = os.listdir(trial.path("runs"))
    assert f"model: runs/{run}/model.safetensors" in ran.stdout, ran.stdout
    got = json.loads(trial.ask("evaluate", f"runs/{run}", "--json").stdout)
    assert got["loss"] == float(metadata(trial.path("remote/model.safetensors"))["test_loss"]), got
    os.remove(trial.path(f"runs/{run}/model.safetensors"))
    said = trial.ask("evaluate", f"runs/{run}", code=5).stderr
    assert f"copy model.safetensors from {trial.path('remote')} there into " in said, said


def main(psctl):
    trial, draw = Trial(psctl), random.Random(1)
    classes(trial, draw)
    elsewhere(trial, draw)
    numbers(trial, draw)
    prices(trial, draw)
    images(trial, draw)
    tokens(trial)
    started(trial)
    other_machines(trial)
    print("tables, images and tokens train; broken files are named")


main(*sys.argv[1:])
