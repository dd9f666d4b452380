"""Tests that psctl evaluate and psctl predict agree with the run that trained the model.

    evaluate_test.py PSCTL PROGRAM JOB
"""

import csv
import json
import os
import signal
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

    # The umask sets the read permissions of the folder.
    umask = os.umask(0)
    os.umask(umask)
    assert os.stat(folder).st_mode & 0o777 == 0o777 & ~umask
    assert os.stat(f"{folder}/model.safetensors").st_mode & 0o777 == 0o666 & ~umask
    # A job file that --resume rejects does not replace the run's job file.
    job_file = os.path.join(folder, "job.textproto")
    with open(job_file, encoding="utf-8") as file:
        kept = file.read()
    for setting, code in ("seed=9", 4), ("optimizer.learning_rate=0.25", 0):
        again = subprocess.run([program, "--local", "--resume", f"--job={job}", f"--dir={folder}", f"--set={setting}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        assert again.returncode == code, (setting, again.returncode)
        with open(job_file, encoding="utf-8") as file:
            text = file.read()
        assert (text == kept) == (code != 0), text
    assert "learning_rate: 0.25" in text, text

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
        assert got["data"].startswith("the test images of "), got

    # The run's folder and its last checkpoint both name the last model.
    final = json.loads(ask("evaluate", folder, "--json"))
    last = "state/" + max(name for name in os.listdir(f"{folder}/state") if name.startswith("checkpoint-"))
    checkpoint = json.loads(ask("evaluate", f"{folder}/{last}", "--json"))
    # An exported file also contains the last model.
    path = os.path.join(folder, "exported.safetensors")
    subprocess.run([psctl, "export", f"--dir={folder}", f"--out={path}"], check=True, stdout=subprocess.DEVNULL)
    exported = json.loads(ask("evaluate", path, "--json"))
    for figures in final, checkpoint, exported:
        del figures["model"]
    assert final == checkpoint == exported, (final, checkpoint, exported)

    rows = list(csv.DictReader(ask("predict", folder).splitlines()))
    assert len(rows) == final["samples"]
    assert [int(row["sample"]) for row in rows] == list(range(len(rows)))
    right = sum(float(row["predicted"]) == float(row["target"]) for row in rows)
    assert right / len(rows) == final["metrics"]["accuracy"]
    first = [float(rows[0][f"probability_{i}"]) for i in range(10)]
    assert int(rows[0]["predicted"]) == first.index(max(first)) and abs(sum(first) - 1) < 1e-6

    lines = os.path.join(folder, "answers.json")
    told = ask("predict", folder, "--json", f"--out={lines}", "--on_training_data")
    assert told == f"wrote the predictions of 6000 training samples to {lines}\n", told
    with open(lines, encoding="utf-8") as file:
        answers = [json.loads(line) for line in file]
    assert len(answers) == 6000 and len(answers[0]["probabilities"]) == 10
    measured = os.path.join(folder, "measured.json")
    told = ask("evaluate", folder, "--json", f"--out={measured}")
    assert told == f"wrote the evaluation of {final['samples']} test samples to {measured}\n", told
    with open(measured, encoding="utf-8") as file:
        assert json.load(file)["loss"] == final["loss"]
    # A pipe receives only the predictions.
    piped = json.loads(ask("evaluate", folder, "--json", "--out=/dev/stdout"))
    assert piped["loss"] == final["loss"], piped

    # Unreadable inputs get an error message: a name that is too long, a symbolic link to itself.
    loop = os.path.join(folder, "loop")
    os.symlink("loop", loop)
    for model, code in ("n" * 300 + ".safetensors", 4), (loop, 5):
        asked = subprocess.run([psctl, "evaluate", f"--model={model}", f"--job={job}", f"--worker_binary={program}"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert asked.returncode == code, (model, asked)
        assert len(asked.stderr.splitlines()) == 1, asked.stderr
    asked = subprocess.run([program, f"--evaluate={loop}", f"--job={job}"], stderr=subprocess.PIPE, text=True, check=False)
    assert asked.returncode == 4, asked
    # File names may use any encoding.
    odd = os.fsencode(folder) + b"/\xff.safetensors"
    os.link(os.path.join(folder, "model.safetensors"), odd)
    asked = subprocess.run([program, b"--evaluate=" + odd, f"--job={job}", "--json"], stdout=subprocess.PIPE, check=True)
    assert json.loads(asked.stdout)["samples"] == final["samples"], asked.stdout

    # The checkpoint's model is extracted to a private temporary file, which a stopped psctl removes.
    place = os.path.join(folder, "place")
    os.mkdir(place)
    environment = {**os.environ, "TMPDIR": place}
    slow = os.path.join(folder, "slow")
    with open(slow, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\ntrap 'exit 9' TERM\necho begun\nwhile :; do read -r line; done\n")
    os.chmod(slow, 0o700)
    asked = subprocess.Popen([psctl, "evaluate", f"--model={folder}/{last}", f"--worker_binary={slow}"],
                             env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert asked.stdout.readline() == "begun\n"
    (made,) = os.listdir(place)
    assert os.stat(os.path.join(place, made)).st_mode & 0o777 == 0o700
    asked.send_signal(signal.SIGTERM)
    assert asked.wait() == 9, asked.returncode
    assert os.listdir(place) == []
    # The parent process may ignore SIGCHLD.
    asked = subprocess.run([psctl, "evaluate", f"--model={folder}/{last}", f"--worker_binary={program}", "--set=x=1"],
                           env=environment, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
                           stderr=subprocess.DEVNULL, check=False)
    assert asked.returncode == 2, asked.returncode
    assert os.listdir(place) == []

    print("evaluate and predict agree with the run")


main(*sys.argv[1:])
