"""Checks the commands in the fenced blocks of README.md and docs/*.md.

    tests/docs/commands_test.py [--bin=DIR] [PAGE]...

DIR holds the programs in Bazel's layout: tools/psctl, server/ps_server (default: the current folder, for the runfiles).
A command runs if one machine without root, containers, a GPU and a network suffices. Jobs are cut to one epoch. The
commands of all pages run in order in one scratch folder. Of every command the test checks that the subcommand, the
flags, the files of the tree and the Bazel targets exist.
"""

import argparse
import functools
import glob
import os
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
PAGES = [f"docs/{name}.md" for name in ("quickstart", "guide", "operate", "security", "storage", "gpus", "contributing",
                                        "results", "architecture", "protocol", "job")] + ["README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:sudo )?(?:[A-Z_]+=\S+ )*((psctl|ps_server|ps_worker|program|mine|bazel|docker\S*)(?= |$)|"
                     r"(bazel-bin|build|deploy|bench)/[\w./]+)")
IN_TREE = re.compile(r"(?<![\w/.~}-])(?:\$PWD/)?((?:bench|deploy|docs|examples|server|tests|tools)/[\w./-]*\w)")
TARGET = re.compile(r"(?<!\S)-?//([\w/]*?)(?:/?\.\.\.|:(\w+))(?=\s|$)")
# A command that matches cannot run here, for the reason given.
STATIC = [(re.compile(pattern), reason) for pattern, reason in (
    (r"^(sudo|docker|kubectl|ssh|bazel |deploy/|bench/)", "installs, builds or measures"),
    (r"^program ", "a program of the reader"),
    (r"cuda|--gpus|\$RUN --gpus", "GPU"),
    (r"--download|--mirrors", "network"),
    (r"\b[a-z]+:\d{4}|0\.0\.0\.0|--hosts=\w+\.hosts|=file:", "several machines"),
    (r"=/(data|opt|shared)/", "folders of another machine"),
)]
PLACEHOLDER = re.compile(r"(?<![\w.])[A-Z][A-Z_]+\b(?!=)|\.\.\.|\$\w")
NEEDS_RUNNING_JOB = {"status", "checkpoint", "stop"}


def commands(text):
    """Yields (line number, command) for the commands of a page's fenced blocks."""
    for block in BLOCK.finditer(text):
        if block.group(1) not in ("", "sh"):
            continue
        number = text[:block.start()].count("\n") + 2
        variables = {}
        prompts = re.search(r"^\$ ", block.group(2), re.MULTILINE)
        for line in re.sub(r"\\\n", "\0", block.group(2)).split("\n"):
            here, number = number, number + 1 + line.count("\0")
            line = re.sub(r"\s+#.*", "", " ".join(line.replace("\0", " ").split()))
            if prompts:
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            line = re.sub(r"\$(\w+)", lambda name: variables.get(name.group(1), name.group(0)), line)
            if assigned := re.fullmatch(r'([A-Z_]+)=("[^"]*"|\S*)', line):
                variables[assigned.group(1)] = assigned.group(2).strip('"')
            elif COMMAND.match(line):
                yield here, line


class Scratch:
    """A folder with the programs on PATH, sample data, and the files of the tree that commands name."""

    def __init__(self, programs):
        self.path = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.job = None  # the running job for psctl status and the like
        os.makedirs(f"{self.path}/bin")
        os.makedirs(f"{self.path}/build")
        for name in "deploy", "examples":
            os.symlink(f"{ROOT}/{name}", f"{self.path}/{name}")
        os.symlink(programs, f"{self.path}/bazel-bin")
        for name in "tools/psctl", "server/ps_server", "program/ps_worker":
            os.symlink(f"{programs}/{name}", f"{self.path}/bin/{os.path.basename(name)}")
        os.symlink(f"{programs}/examples/mnist_torchps", f"{self.path}/build/mine")
        os.symlink("../build/mine", f"{self.path}/bin/mine")
        self.environment = {**os.environ, "PATH": f"{self.path}/bin:{os.environ['PATH']}"}
        self.write_images("flowers")

    def write_images(self, folder):
        for split, label, number in ((s, c, n) for s in ("train", "test") for c in ("rose", "tulip") for n in range(8)):
            os.makedirs(f"{self.path}/{folder}/{split}/{label}", exist_ok=True)
            rows = zlib.compress(b"".join(b"\0" + bytes([number * 8] * 24) for _ in range(8)))
            with open(f"{self.path}/{folder}/{split}/{label}/{number}.png", "wb") as file:
                file.write(b"\x89PNG\r\n\x1a\n")
                for kind, data in (b"IHDR", struct.pack(">2I5B", 8, 8, 8, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""):
                    file.write(struct.pack(">I", len(data)) + kind + data +
                               struct.pack(">I", zlib.crc32(kind + data)))

    def write_tables(self, command):
        draw = random.Random(1)
        for name in re.findall(r"\b\w+\.csv\b", command):
            with open(f"{self.path}/{name}", "w", encoding="utf-8") as file:
                file.write("width,price,rent,kind\n")
                for _ in range(200):
                    kind = draw.randrange(3)
                    file.write(f"{kind + draw.random()},{draw.random()},{kind * draw.random()},{kind}\n")

    def write_job(self, text):
        """Writes the page's YAML job as job.yaml."""
        for language, block in BLOCK.findall(text):
            if language == "yaml" and "model:" in block:
                with open(f"{self.path}/job.yaml", "w", encoding="utf-8") as file:
                    file.write(block)

    def newest_run(self, command, name):
        """Returns the newest run with a model that suits the command: of this name, and on a table if it names one."""
        for run in sorted(glob.glob(f"{self.path}/runs/*/model.safetensors"), key=os.path.getmtime, reverse=True):
            folder = os.path.dirname(run)
            with open(f"{folder}/job.textproto", encoding="utf-8") as file:
                table = 'source: "csv"' in file.read()
            if table >= (".csv" in command) and os.path.basename(folder).startswith(name):
                return os.path.basename(folder)
        return "NAME"

    def filled_in(self, command):
        """Replaces the placeholders for a job and a run."""
        command = command.replace("=JOB", "=deploy/jobs/mlp_digits.textproto")
        command = re.sub(r"runs/(\w+)-TIME", lambda found: "runs/" + self.newest_run(
            command, found.group(1).replace("NAME", "")), command)
        return re.sub(r"(?<= )NAME(?= |$)", lambda _: self.newest_run(command, ""), command)

    def keep_job_running(self):
        if self.job and self.job.poll() is None:
            return
        self.job = subprocess.Popen(["psctl", "run", "digits", "--workers=1", "--epochs=100000"], cwd=self.path,
                                    env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.job.stdout:
            if "epoch" in line:
                return

    def stop_job(self):
        if self.job:
            self.job.terminate()
            self.job.communicate()
            self.job = None

    def run(self, command):
        """Runs the command and returns what is wrong, or ''."""
        words = shlex.split(command)
        self.write_tables(command)
        if words[0] == "psctl" and words[1] in NEEDS_RUNNING_JOB:
            self.keep_job_running()
        else:
            self.stop_job()
        if "psctl" in words[0] and words[1] == "run" and "--resume" not in words:
            words.append("--epochs=1")
        if "--local" in words:
            words.append("--set=training.epochs=1")
        if words[:2] == ["psctl", "drill"]:
            words.append("--seconds=10")
        follows = "--watch" in words
        try:
            done = subprocess.run(words, cwd=self.path, env=self.environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5 if follows else 240)
        except subprocess.TimeoutExpired:
            return "" if follows else "did not end within 240 s"
        last = "\n      ".join(done.stdout.decode(errors="replace").strip().split("\n")[-6:])
        return f"exited with {done.returncode}:\n      {last}" if done.returncode else ""


@functools.lru_cache(None)
def help_of(program, subcommand):
    arguments = ["help", subcommand] if subcommand else ["--help"]
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def folder_text(folder):
    paths = glob.glob(f"{ROOT}/{folder}/**/*.py", recursive=True) + glob.glob(f"{ROOT}/{folder}/**/*.sh", recursive=True)
    return "\n".join(open(path, encoding="utf-8").read() for path in paths)


def faults(programs, command):
    """Yields the names in a command that do not exist."""
    name = COMMAND.match(command).group(1)
    for path in IN_TREE.findall(re.sub(r"//\S+|bazel-bin/\S+|build/\S+", "", command)):
        if not os.path.exists(f"{ROOT}/{path}"):
            yield f"there is no {path}"
    for package, target in TARGET.findall(command):
        build = f"{ROOT}/{package}/BUILD"
        if not os.path.isdir(f"{ROOT}/{package}"):
            yield f"there is no folder {package}"
        elif target and target != "all" and f'"{target}"' not in open(build, encoding="utf-8").read():
            yield f"{package}/BUILD has no target {target}"
    if name.startswith(("bazel ", "docker")) or name == "bazel":
        return
    if name.startswith(("deploy/", "bench/")):
        known = folder_text(name.split("/")[0])
    elif "psctl" in name:
        known = help_of(f"{programs}/tools/psctl", command.split(name)[1].split()[0])
    else:
        known = help_of(f"{programs}/" + ("server/ps_server" if name == "ps_server" else "program/ps_worker"), "")
    for flag in re.findall(r"(?<= )--([a-z][\w-]*)", command):
        if not re.search(rf"--{flag}\b", known):
            yield f"{name} has no flag --{flag}"


def reason_not_to_run(command):
    reason = next((reason for pattern, reason in STATIC if pattern.search(command)), None)
    if not reason and PLACEHOLDER.search(re.sub(r"--set[ =]\S+|[\w-]+/\S+", "", command)):
        return "placeholder"
    return reason


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=".")
    parser.add_argument("pages", nargs="*", default=PAGES)
    arguments = parser.parse_args()
    programs = os.path.abspath(arguments.bin)
    scratch, failed = Scratch(programs), 0
    for page in arguments.pages:
        with open(f"{ROOT}/{page}", encoding="utf-8") as file:
            text = file.read()
        scratch.write_job(text)
        for line, command in commands(text):
            started, wrong = time.time(), "; ".join(faults(programs, command))
            command = scratch.filled_in(command)
            reason = reason_not_to_run(command)
            if not wrong and not reason:
                wrong = scratch.run(command)
            failed += bool(wrong)
            done = f"checked ({reason})" if reason else f"ran, {time.time() - started:.1f} s"
            print(f"{page}:{line}: {'FAILED' if wrong else done}: {command}", flush=True)
            if wrong:
                print(f"    {wrong}")
        scratch.stop_job()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
