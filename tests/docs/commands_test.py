"""Checks the commands in the fenced blocks of README.md and docs/*.md.

    tests/docs/commands_test.py [--bin=DIR] [PAGE]...

DIR holds the programs in Bazel's layout: torchps/psctl, ... (default: the current folder, for the runfiles). Of every
command the subcommand, the flags, the files of the tree and the Bazel targets must exist. A command runs if one machine
without root, containers, GPU and network suffices; all run in order in one scratch folder, jobs with one epoch.
"""

import argparse
import functools
import glob
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST = ["docs/quickstart.md", "docs/guide.md", "docs/operate.md"]  # their runs serve the other pages
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:sudo )?(?:[A-Z_]+=\S+ )*((?:psctl|ps_server|ps_worker|program|mine|bazel|docker\S*)(?= |$)|"
                     r"(?:bazel-bin|build|deploy|bench)/[\w./]+)")
IN_TREE = re.compile(r"(?<![\w/.~}-])(?:\$PWD/)?((?:bench|deploy|docs|examples|tests)/[\w./-]*\w)")
TARGET = re.compile(r"(?<!\S)-?//([\w/]*?)(?:/?\.\.\.|:(\w+))(?=\s|$)")
# A command that matches cannot run here, for the reason given.
STATIC = [(re.compile(pattern), reason) for pattern, reason in (
    (r"^(\w+=\S+ )*(sudo|docker\S*|kubectl|ssh|bazel|deploy/\S+|(bazel-bin/)?bench/\S+)( |$)", "installs or builds"),
    (r"^program ", "the reader's program"),
    (r"--prune(?!.*--yes)", "asks on a terminal"),
    (r"cuda|--gpus", "GPU"),
    (r"--download|--mirrors", "network"),
    (r"\b[a-z]+:\d{4}|0\.0\.0\.0|--hosts=\w+\.hosts|=file:", "several machines"),
    (r"=/(data|opt|shared)/", "folders of another machine"),
)]
PLACEHOLDER = re.compile(r"(?<![\w.])[A-Z][A-Z_]+\b(?!=)|\.\.\.|\$\w")


def commands(text):
    """Yields (line number, command) for the commands of a page's fenced blocks."""
    for block in BLOCK.finditer(text):
        number, variables = text[:block.start()].count("\n") + 2, {}
        prompts = re.search(r"^\$ ", block.group(2), re.MULTILINE)
        for line in block.group(2).replace("\\\n", "\0").split("\n") if block.group(1) in ("", "sh") else ():
            here, number = number, number + 1 + line.count("\0")
            line = re.sub(r"\s+#.*", "", " ".join(line.replace("\0", " ").split()))
            if prompts:
                line = line[2:] if line.startswith("$ ") else ""
            line = re.sub(r"\$(\w+)", lambda name: variables.get(name.group(1), name.group(0)), line)
            if assigned := re.fullmatch(r'([A-Z_]+)=("[^"]*"|\S*)', line):
                variables[assigned.group(1)] = assigned.group(2).strip('"')
            elif COMMAND.match(line):
                yield here, line


@functools.lru_cache(None)
def help_of(program, *subcommand):
    arguments = ["help", *subcommand] if subcommand else ["--help"]
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout if "--" in done.stdout else ""


@functools.lru_cache(None)
def sources(folder):
    return "\n".join(path.read_text() for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".cc"))


def faults(programs, command):
    """Yields a sentence for each name in a command that does not exist."""
    paths = IN_TREE.findall(re.sub(r"//\S+|bazel-bin/\S+|build/\S+", "", command))
    yield from (f"there is no {path}" for path in paths if not (ROOT / path).exists())
    for package, target in TARGET.findall(command):
        if not (ROOT / package).is_dir():
            yield f"there is no folder {package}"
        elif target not in ("", "all") and f'"{target}"' not in (ROOT / package / "BUILD").read_text():
            yield f"{package}/BUILD has no target {target}"
    name = COMMAND.match(command).group(1)
    if name.startswith(("bazel", "docker")) and "/" not in name:
        return
    if scripts := re.match(r"(?:bazel-bin/)?(deploy|bench)/", name):
        known = re.sub(r"(?<=[\s\"-])(\w+)\b", r"--\1", sources(scripts.group(1)))
    elif name.endswith("psctl"):
        known = help_of(f"{programs}/torchps/psctl", command.split(name)[1].split()[0])
    else:
        known = help_of(f"{programs}/{'torchps/ps_server' if name == 'ps_server' else 'torchps/ps_worker'}")
    if not known:
        yield f"{name} has no help on '{command}'"
    flags = re.findall(r"(?<= )--([a-z]\w*)", command)
    yield from (f"{name} has no flag --{flag}" for flag in flags if not re.search(rf"--{flag}\b", known))


def reason_not_to_run(command):
    reason = next((reason for pattern, reason in STATIC if pattern.search(command)), None)
    if not reason and PLACEHOLDER.search(re.sub(r"--set[ =]\S+|[\w-]+/\S+", "", command)):
        return "placeholder"
    return reason


class Scratch:
    """A folder with the programs on PATH, sample data, and the folders of the tree that commands name."""

    def __init__(self, programs):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"), ignore_cleanup_errors=True)
        self.path = self.folder.name
        self.job = None  # a running job, for psctl status and the like
        os.makedirs(f"{self.path}/build")
        for target, name in ((f"{ROOT}/deploy", "deploy"), (f"{ROOT}/examples", "examples"), (programs, "bazel-bin"),
                             (f"{programs}/examples/mnist_torchps", "build/mine")):
            os.symlink(target, f"{self.path}/{name}")
        folders = [f"{programs}/torchps", f"{self.path}/build"]
        self.environment = {**os.environ, "PATH": ":".join([*folders, os.environ["PATH"]])}
        for split, label, number in ((s, c, n) for s in ("train", "test") for c in ("rose", "tulip") for n in range(8)):
            folder = f"{self.path}/flowers/{split}/{label}"
            os.makedirs(folder, exist_ok=True)
            chunks = ((b"IHDR", struct.pack(">2I5B", 8, 8, 8, 2, 0, 0, 0)),
                      (b"IDAT", zlib.compress((b"\0" + bytes([number * 8] * 24)) * 8)), (b"IEND", b""))
            Path(folder, f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
                struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
                for kind, data in chunks))

    def newest_run(self, command, name):
        """Returns the newest run with a model and this prefix; one trained on a table if the command names a table."""
        for run in sorted(glob.glob(f"{self.path}/runs/{name}*/model.safetensors"), key=os.path.getmtime, reverse=True):
            if ".csv" not in command or 'source: "csv"' in Path(run).with_name("job.textproto").read_text():
                return Path(run).parent.name
        return "NAME"

    def filled_in(self, command):
        """Replaces the placeholders for a job and a run."""
        command = command.replace("=JOB", "=deploy/jobs/mlp_digits.textproto")
        command = re.sub(r"(?<=runs/)(\w+)-TIME", lambda found: self.newest_run(
            command, found.group(1).replace("NAME", "")), command)
        return re.sub(r"(?<= )NAME(?= |$)", lambda _: self.newest_run(command, ""), command)

    def start_job(self):
        if not self.job or self.job.poll() is not None:
            command = ["psctl", "run", "digits", "--workers=1", "--epochs=100000"]
            self.job = subprocess.Popen(command, cwd=self.path, env=self.environment, stdout=subprocess.PIPE, text=True)
            next((line for line in self.job.stdout if "test accuracy" in line), None)

    def stop_job(self):
        if self.job:
            self.job.terminate()
            self.job.communicate()
            self.job = None

    def run(self, command):
        """Runs the command. Returns what is wrong, or ''."""
        rows = [f"{n % 3 + n / 200},{n},{n % 3 * n},{n % 3}" for n in range(200)]
        for name in re.findall(r"\b\w+\.csv\b", command):
            Path(self.path, name).write_text("\n".join(["width,price,rent,kind", *rows]))
        words = shlex.split(command)
        if words[0] == "psctl" and words[1] in ("status", "checkpoint", "stop"):
            self.start_job()
        else:
            self.stop_job()
        if "--local" in words or "run" in words[:2] and "--resume" not in words:
            words.append("--set=training.epochs=1")
        elif "drill" in words[:2]:
            words.append("--seconds=10")
        follows = "--watch" in words
        try:
            done = subprocess.run(words, cwd=self.path, env=self.environment, input=b"y\n", stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=5 if follows else 240)
        except (OSError, subprocess.TimeoutExpired) as error:
            return "" if follows else str(error)
        last = "\n    ".join(done.stdout.decode(errors="replace").strip().split("\n")[-6:])
        return f"exited with {done.returncode}:\n    {last}" if done.returncode else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=".")
    parser.add_argument("pages", nargs="*")
    arguments = parser.parse_args()
    programs = os.path.abspath(arguments.bin)
    others = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")) + ["README.md"]
    scratch, failed = Scratch(programs), 0
    for page in arguments.pages or FIRST + [page for page in others if page not in FIRST]:
        text = (ROOT / page).read_text()
        job = next((block for kind, block in BLOCK.findall(text) if kind == "yaml"), "")
        Path(scratch.path, "job.yaml").write_text(job)
        for line, command in commands(text):
            wrong, command = "; ".join(faults(programs, command)), scratch.filled_in(command)
            reason = reason_not_to_run(command)
            wrong = wrong or ("" if reason else scratch.run(command))
            failed += bool(wrong)
            print(f"{page}:{line}: {'FAILED' if wrong else reason or 'ran'}: {command}", flush=True)
            if wrong:
                print(f"    {wrong}")
        scratch.stop_job()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
