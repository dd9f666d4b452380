"""Reads facts about the machine that runs deploy/gpu_test.sh."""

import contextlib
import csv
import os
import re
import subprocess

MIB = 1 << 20


def machine_facts():
    yield "cores", os.cpu_count()
    yield "glibc", os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    yield "kernel", os.uname().release
    yield "memory_mib", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
    model = re.search(r"model name\s*:\s*(.*)", read("/proc/cpuinfo"))
    yield "processor", model.group(1) if model else "?"


def nvidia_smi(what, limit_s=30):
    """Runs nvidia-smi and returns the rows of the output, one for each GPU."""
    asked = subprocess.Popen(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"],
                             stdout=subprocess.PIPE, text=True)
    try:
        said, _ = asked.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # Does not wait for the exit as subprocess.run() does, because a hanging driver may prevent it.
        asked.kill()
        raise
    if asked.returncode != 0:
        raise subprocess.CalledProcessError(asked.returncode, asked.args)
    return [[cell.strip() for cell in row] for row in csv.reader(said.splitlines())]


def gpu_memory_mib():
    return int(nvidia_smi("memory.used", limit_s=10)[0][0])


def memory_of(pid, on_gpu):
    """Returns the memory of a process in bytes: resident, mapped from the driver (pinned), and on the GPU."""
    status = read(f"/proc/{pid}/status")
    own = re.search(r"VmRSS:\s*(\d+) kB", status)
    memory = {"resident memory": int(own.group(1)) * 1024 if own else 0}
    if on_gpu:
        memory["memory mapped from the driver"] = sum(
            int(end, 16) - int(begin, 16) for begin, end in
            re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*/dev/nvidia", read(f"/proc/{pid}/maps"),
                       re.MULTILINE))
        memory["the GPU's memory"] = gpu_memory_mib() * MIB
    return memory


def read(path):
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    return ""
