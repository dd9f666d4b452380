#!/usr/bin/env python3
"""Runs the stages of deploy/gpu_test.sh (stages.py) on a bundle. The last line is 'N passed, N failed';
OUT/gpu.json contains the figures, OUT/log the output of each program.

    run.py --bundle=FOLDER --out=FOLDER [--device=cuda] [--seconds=560] [--only=STAGE,...]
           [--leak_seconds=40] [--torch_lib=FOLDER[:FOLDER]...]

Uses the torch of this Python, which must have the bundle's version, or the libraries in the folders of
--torch_lib.
"""

import argparse
import glob
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from machine import nvidia_smi  # noqa: E402
from runner import Run  # noqa: E402
from stages import Place  # noqa: E402

# In less time, a worker's memory is not meaningful.
LEAST_LEAK_S = 10


def refuse(sentence):
    print(f"gpu_test.sh: {sentence}", file=sys.stderr)
    sys.exit(2)


def check_driver():
    try:
        gpus = nvidia_smi("name")
    except (OSError, subprocess.SubprocessError) as error:
        refuse(f"no NVIDIA driver answers here ({error}); 'nvidia-smi' must list the GPU.")
    if not gpus:
        refuse("nvidia-smi lists no GPU here.")


def torch_libraries(version):
    """Checks that this Python's torch is `version`. Returns the folder of its libraries."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        refuse(f"{sys.executable} has no torch; the bundle needs {version}.")
    folder = list(spec.submodule_search_locations)[0]
    with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
        found = re.search(r"__version__ = '([^']+)'", file.read())
    if found is None or found.group(1) != version:
        refuse(f"the bundle is built for torch {version}, and {sys.executable} has "
               f"{found.group(1) if found else 'another'}; pack one with --torch={version.split('+')[0]}.")
    return os.path.join(folder, "lib")


def check_glibc(needed):
    here = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    if [int(part) for part in here.split(".")] < [int(part) for part in needed.split(".")]:
        refuse(f"this machine's glibc is {here}, the bundle's programs need {needed}.")


# Libraries that belong to the machine, not to the bundle.
MACHINES_OWN = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so")


def check_libraries(bundle, folders, alone):
    """Checks that every library of the bundle's programs is found. With `alone`, the libraries must be in
    `folders` or belong to the machine; otherwise a rehearsal would not notice a library missing in the
    bundle."""
    for program in sorted(glob.glob(os.path.join(bundle, "bin", "*"))):
        listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, check=False).stdout
        for line in listed.splitlines():
            if "not found" in line:
                refuse(f"{os.path.basename(program)} cannot be loaded here: {line.strip()}.")
            name, arrow, path = line.strip().partition(" => ")
            path = os.path.realpath(path.split(" (")[0])
            if alone and arrow and not MACHINES_OWN.match(name) and not any(
                    path.startswith(os.path.realpath(folder) + "/") for folder in folders):
                refuse(f"{os.path.basename(program)} takes {name} from {path}: the bundle lacks it.")


def main():
    # --seconds includes the preparation before the first stage.
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("--leak_seconds", type=int)
    parser.add_argument("--torch_lib", default="")
    options = parser.parse_args()
    if options.leak_seconds is not None and options.leak_seconds < LEAST_LEAK_S:
        refuse(f"--leak_seconds={options.leak_seconds}: expected at least {LEAST_LEAK_S}.")

    with open(os.path.join(options.bundle, "VERSION.json"), encoding="utf-8") as file:
        version = json.load(file)
    if options.device != "cpu":
        check_driver()
    torch = options.torch_lib.split(":") if options.torch_lib else [torch_libraries(version["torch"])]
    check_glibc(version["glibc"])
    folders = [os.path.join(os.path.abspath(options.bundle), "lib"), *torch]
    # Followed by the machine's own setting, because some machines need it to find the driver.
    machines = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = ":".join(folders + ([machines] if machines else []))
    check_libraries(options.bundle, folders, alone=options.device == "cpu")

    place = Place(os.path.abspath(options.bundle), options.device, options.leak_seconds)
    stages = place.stages()
    if options.only:
        wanted = options.only.split(",")
        unknown = set(wanted) - {stage.name for stage in stages}
        if unknown:
            refuse(f"unknown stage {', '.join(sorted(unknown))}; expected "
                   f"{', '.join(stage.name for stage in stages)}.")
        stages = [stage for stage in stages if stage.name in wanted]
    print(f"bundle of {version['commit']}, torch {version['torch']}, device {options.device}", flush=True)
    seconds = place.seconds() if options.seconds is None else options.seconds
    run = Run(options.out, seconds - (time.monotonic() - began))
    # On SIGTERM, stops the started programs and reports the results so far.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        run.go(stages)
    finally:
        print(f"figures: {os.path.join(options.out, 'gpu.json')}")
        passed, failed = run.counts()
        print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
