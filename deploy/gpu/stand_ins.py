#!/usr/bin/env python3
"""Makes one stand-in for the CUDA libraries (gigabytes) that a CUDA build of torch is linked with, so that
programs linked with torch start and compute on the CPU without these libraries.

    deploy/gpu/stand_ins.py --out=FOLDER TORCH_LIB CUDART_LIB

The second folder holds libcudart, which torch calls when loaded. Each function of the stand-in aborts.
Needs gcc, nm and objdump.
"""

import argparse
import glob
import os
import re
import subprocess
import sys


# CUDA's libraries and functions, without libcuda and NVRTC, which programs open at run time if present.
LIBRARY = re.compile(r"lib(cu(?!da\.so)|nccl|nv(?!rtc))")
FUNCTION = re.compile(r"cu|nccl|nv")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(library, kind):
    """Returns name -> version of the symbols that `library` defines or imports; the version may be empty."""
    return {name: version.lstrip("@") for name, _, version in (
        line.split()[-1].partition("@") for line in run("nm", "-D", kind, library).splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("folders", nargs="+")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    libraries = [path for folder in options.folders for path in glob.glob(os.path.join(folder, "*.so*"))]
    needed, wanted, defined = set(), {}, {}
    for library in libraries:
        needed.update(re.findall(r"^\s*NEEDED\s+(\S+)$", run("objdump", "-p", library), re.MULTILINE))
        wanted.update(symbols(library, "--undefined-only"))
        defined.update(symbols(library, "--defined-only"))
    functions = sorted(name for name in wanted if FUNCTION.match(name) and name not in defined)
    script = os.path.join(options.out, "versions")
    with open(script, "w", encoding="utf-8") as file:
        for version in sorted({wanted[name] for name in functions} - {""}):
            its = "".join(f" {name};" for name in functions if wanted[name] == version)
            file.write(f"{version} {{{its} }};\n")
    source = "void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in functions)
    subprocess.run(["gcc", "-w", "-O1", "-shared", "-fPIC", f"-Wl,--version-script={script}", "-xc", "-",
                    "-o", os.path.join(options.out, "stand_in.so")], input=source, text=True, check=True)
    for name in needed - {os.path.basename(library) for library in libraries}:
        if LIBRARY.match(name):
            os.symlink("stand_in.so", os.path.join(options.out, name))


if __name__ == "__main__":
    sys.exit(main())
