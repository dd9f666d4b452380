"""Runs stages one by one, each with a time limit, and records their results.

A stage is a function with a Run parameter. It makes checks, which pass or fail, and records figures. Each
result is written at once, so that the loss of the machine loses no results.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import traceback
import typing


# Time for a killed process to exit. A process blocked in a driver may never exit, and is left behind.
PATIENCE_S = 5


@dataclasses.dataclass
class Stage:
    name: str
    run: typing.Callable
    limit_s: float


@dataclasses.dataclass
class Ended:
    """A command that has ended. `code` is None if it was killed."""
    code: typing.Optional[int]
    out: str
    error: str

    @property
    def said(self):
        return self.out + self.error


class OutOfTime(Exception):
    """The stage's time limit has passed."""


def say_at_once(text):
    """Prints a line and flushes it, in case this process is killed."""
    print(text, flush=True)


class Run:
    """The interface for stages: commands that end with the stage, checks, figures, and a temporary folder."""

    def __init__(self, out, seconds, clock=time.monotonic, say=say_at_once):
        self._clock = clock
        self._say = say
        self._end = clock() + seconds
        self._stage_end = self._end
        self._results = {"figures": {}, "checks": [], "stages": {}}
        self._stage = None
        self._file = os.path.join(out, "gpu.json")
        os.makedirs(out, exist_ok=True)
        self._log = os.path.join(out, "log")
        with open(self._log, "w", encoding="utf-8"):
            pass
        # Temporary folder of the current stage.
        self.folder = None

    # Functions for stages.

    def left_s(self):
        """Returns the seconds until the stage must end."""
        return self._stage_end - self._clock()

    def check(self, what, holds, why=""):
        """Counts `what` as passed or failed; `why` describes the failure."""
        self._results["checks"].append(
            {"stage": self._stage, "what": what, "passed": bool(holds), "why": "" if holds else why})
        if not holds:
            self._say(f"  FAILED {what}" + (f": {why}" if why else ""))
            self.log(f"FAILED {what}: {why}")
        self._write()
        return bool(holds)

    def figure(self, name, value):
        self._results["figures"].setdefault(self._stage, {})[name] = value
        self.log(f"{name} = {value}")
        self._write()

    def say(self, text):
        """Prints a line, and writes it to the log."""
        self._say(f"  {text}")
        self.log(text)

    def log(self, text):
        with open(self._log, "a", encoding="utf-8") as file:
            file.write(text.rstrip() + "\n")

    def command(self, arguments, limit_s=None, env=None):
        """Runs a program; kills it and its children when the time is over."""
        with self.started(arguments, env) as process:
            limit_s = self.left_s() if limit_s is None else min(limit_s, self.left_s())
            try:
                out, error = process.communicate(timeout=max(limit_s, 0.1))
                ended = Ended(process.returncode, out, error)
            except subprocess.TimeoutExpired:
                _kill(process)
                ended = Ended(None, *_rest(process))
        self.log(f"ended with {ended.code}\n{ended.said}")
        if ended.code is None and self.left_s() <= 0:
            raise OutOfTime(f"'{os.path.basename(arguments[0])}' had not ended")
        return ended

    def first_line(self, process, limit_s=30):
        """Returns the first line of a started program's output. Kills the program and returns "" if none
        comes in time."""
        watch = threading.Timer(max(min(limit_s, self.left_s()), 0.1), _kill, [process])
        watch.daemon = True
        watch.start()
        try:
            return process.stdout.readline()
        finally:
            watch.cancel()

    @contextlib.contextmanager
    def started(self, arguments, env=None, log_file=None):
        """Runs a program in a separate process group, which is killed when the block ends."""
        self.log(f"\n$ {' '.join(arguments)}")
        stream = subprocess.PIPE if log_file is None else log_file
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=stream, stderr=stream,
                                   text=True, errors="replace",
                                   env={**os.environ, **(env or {})}, start_new_session=True)
        try:
            yield process
        finally:
            _kill(process)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE_S)

    # Functions for the main program.

    def go(self, stages):
        for stage in stages:
            self._begin(stage)
            began = self._clock()
            try:
                if self.left_s() <= 0:
                    raise OutOfTime("no time left")
                with tempfile.TemporaryDirectory() as self.folder:
                    stage.run(self)
            except OutOfTime as error:
                self.check(f"{stage.name} ends in time", False, str(error))
            except Exception as error:  # an unexpected error fails only this stage
                self.log(traceback.format_exc())
                self.check(f"{stage.name} runs to its end", False, f"{type(error).__name__}: {error}")
            self._results["stages"][stage.name] = round(self._clock() - began, 1)
            self._write()

    def counts(self):
        passed = sum(check["passed"] for check in self._results["checks"])
        return passed, len(self._results["checks"]) - passed

    def _begin(self, stage):
        self._stage = stage.name
        self._stage_end = min(self._end, self._clock() + stage.limit_s)
        self._say(f"{stage.name} (at most {max(self.left_s(), 0):.0f} s)")
        self.log(f"\n===== {stage.name}")

    def _write(self):
        passed, failed = self.counts()
        self._results["passed"], self._results["failed"] = passed, failed
        with open(self._file + ".new", "w", encoding="utf-8") as file:
            json.dump(self._results, file, indent=2)
            file.write("\n")
        os.replace(self._file + ".new", self._file)


def _rest(process):
    """Returns the remaining output of a killed process on both pipes, which other processes may hold open."""
    try:
        return process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        return [said.decode(errors="replace") if isinstance(said, bytes) else said or ""
                for said in (error.output, error.stderr)]


def _kill(process):
    """Kills the process and its session, which may contain several process groups."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in _session_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session_of(leader):
    """Yields the processes of a session."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # After the name, which may contain anything: state, parent, group, session.
                if int(file.read().rpartition(")")[2].split()[3]) == leader:
                    yield int(name)
