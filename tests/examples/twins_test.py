"""Tests that each example, trained by two workers and a server, matches its twin, a plain torch loop.

    twins_test.py PSCTL PS_SERVER EXAMPLES_FOLDER TWINS_FOLDER

The default job computes the same steps as one process: the workers share a batch of 32, and the mean gradient makes
one step. Both programs train with five seeds. The difference of the mean losses may be as large as the spread of
either program's losses. The final losses of a GAN vary too much for a smaller bound.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

SEEDS = range(1, 6)
ADAM = ["optimizer.kind=adam"]
SETTINGS = {
    "two_inputs": ADAM + ["training.epochs=20", "optimizer.learning_rate=0.003"],
    "reinforce": ADAM + ["training.epochs=5", "optimizer.learning_rate=0.02"],
    "gan": ADAM + ["training.epochs=5", "optimizer.learning_rate=0.002", "optimizer.adam.beta1=0.5"],
    "fine_tune": ["optimizer.learning_rate=0.01", "model.init_partial=true"],
}


def train_backbone(examples, folder):
    run = os.path.join(folder, "digits")
    subprocess.run([f"{examples}/mnist_torchps", "--local", f"--job={examples}/mnist.textproto",
                    "--set=training.epochs=1", f"--dir={run}"], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(run, "model.safetensors")


def loss_on_servers(psctl, server, program, settings, folder):
    job = os.path.join(folder, "job.textproto")
    with open(job, "w", encoding="utf-8") as file:
        file.write('name: "twin"\n')
    run = tempfile.mkdtemp(dir=folder)
    ended = subprocess.run(
        [psctl, "run", f"--job={job}", "--servers=1", "--workers=2", f"--dir={run}",
         f"--server_binary={server}", f"--worker_binary={program}",
         *[f"--set={setting}" for setting in settings]],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{program} ended with {ended.returncode}:\n{ended.stdout}")
    with open(os.path.join(run, "report.json"), encoding="utf-8") as file:
        return json.load(file)["result"]["loss"]


def loss_of_twin(program, *arguments):
    said = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
    return float(said.rsplit("loss ", 1)[1])


def main(psctl, server, examples, twins):
    failed = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        backbone = train_backbone(examples, folder)
        for name, settings in SETTINGS.items():
            more = [f"model.init_from={backbone}"] if name == "fine_tune" else []
            ours = [loss_on_servers(psctl, server, f"{examples}/{name}",
                                    [*settings, *more, f"seed={seed}"], folder)
                    for seed in SEEDS]
            twins_own = [loss_of_twin(f"{twins}/{name}_twin", str(seed), backbone) for seed in SEEDS]
            apart = abs(statistics.mean(ours) - statistics.mean(twins_own))
            spread = max(max(losses) - min(losses) for losses in (ours, twins_own))
            print(f"{name}: {', '.join(f'{loss:.3g}' for loss in ours)}; a plain loop "
                  f"{', '.join(f'{loss:.3g}' for loss in twins_own)}: the means are {apart:.2g} "
                  f"apart, losses of one of the two up to {spread:.2g}")
            if not apart <= spread:
                failed.append(name)
    if failed:
        sys.exit(f"not as good as their twins: {', '.join(failed)}")


main(*sys.argv[1:])
