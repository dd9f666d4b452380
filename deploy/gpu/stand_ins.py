#!/usr/bin/env python3
"""Makes stand-ins for the CUDA libraries (gigabytes) that a CUDA build of torch is linked with, so that
programs linked with torch start and compute on the CPU without these libraries.

    deploy/gpu/stand_ins.py --out=FOLDER TORCH_LIB [CUDA_LIB]...

Libraries in a CUDA_LIB folder do not need a stand-in. libcudart must be there, because torch calls it when
loaded. Each function of a stand-in prints its name and aborts. Needs gcc, nm and objdump.
"""

import argparse
import glob
import os
import re
import subprocess
import sys


# Functions of libraries without symbol versions.
CUDAS_FUNCTION = re.compile(r"nccl|nvshmem|cu[A-Z]|cu(rand|sparse)")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(library):
    """Returns the libraries that `library` needs."""
    return re.findall(r"^\s*NEEDED\s+(\S+)$", run("objdump", "-p", library), re.MULTILINE)


def version_owners(library):
    """Returns version name -> library, for the symbols that `library` imports."""
    owners = {}
    owner = None
    for line in run("objdump", "-p", library).splitlines():
        begins = re.match(r"\s*required from (\S+):$", line)
        if begins:
            owner = begins.group(1)
        elif owner and (version := re.match(r"\s*0x\S+ 0x\S+ \d+ (\S+)$", line)):
            owners[version.group(1)] = owner
        else:
            owner = None
    return owners


def symbols(library, kind):
    """Returns (name, version) of the symbols that `library` defines or imports; the version may be empty."""
    found = []
    for line in run("nm", "-D", kind, library).splitlines():
        name, _, version = line.split()[-1].replace("@@", "@").partition("@")
        found.append((name, version))
    return found


def is_cudas(library):
    """Returns true for CUDA's libraries, except the driver's, which only a machine with a GPU has."""
    return re.match(r"lib(cu|nccl|nv)", library) and not library.startswith("libcuda.so")


def wanted_of(torch_lib, cuda_libs):
    """Returns, for each library that torch needs and no folder contains, the imported symbols."""
    own = {os.path.basename(path): path for folder in [torch_lib, *cuda_libs]
           for path in glob.glob(os.path.join(folder, "*.so*"))}
    loaded = ["libtorch_cuda.so"]
    for name in loaded:  # grows
        loaded += [other for other in needed(own[name]) if other in own and other not in loaded]
    defined = {name for library in loaded for name, _ in symbols(own[library], "--defined-only")}
    wanted = {}
    for library in loaded:
        missing = [name for name in needed(own[library]) if is_cudas(name) and name not in own]
        for name in missing:
            wanted.setdefault(name, set())
        owners = version_owners(own[library])
        for name, version in symbols(own[library], "--undefined-only"):
            if owners.get(version) in wanted:
                wanted[owners[version]].add((name, version))
            elif missing and not version and name not in defined and CUDAS_FUNCTION.match(name):
                # The owner is unknown, and one definition suffices.
                wanted[missing[0]].add((name, ""))
    return wanted


def make(name, taken, out):
    """Makes one stand-in with the imported names and versions."""
    source = ["#include <stdio.h>", "#include <stdlib.h>",
              "static void called(const char* name) {",
              f'  fprintf(stderr, "%s of the stand-in for {name} was called\\n", name);',
              "  abort();", "}"]
    source += [f'void {symbol}(void) {{ called("{symbol}"); }}' for symbol, _ in sorted(taken)]
    versions = {version for _, version in taken if version}
    script = "".join(
        f"{version} {{ {' '.join(symbol + ';' for symbol, its in sorted(taken) if its == version)} }};\n"
        for version in sorted(versions))
    base = os.path.join(out, name)
    with open(base + ".c", "w", encoding="utf-8") as file:
        file.write("\n".join(source) + "\n")
    flags = []
    if script:
        with open(base + ".map", "w", encoding="utf-8") as file:
            file.write(script)
        flags = [f"-Wl,--version-script={base}.map"]
    run("gcc", "-w", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", *flags, "-o", base, base + ".c")
    os.remove(base + ".c")
    if script:
        os.remove(base + ".map")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("torch_lib")
    parser.add_argument("cuda_lib", nargs="*")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    wanted = wanted_of(options.torch_lib, options.cuda_lib)
    for name in sorted(wanted):
        make(name, wanted[name], options.out)
    print(f"stand-ins for {len(wanted)} libraries: {' '.join(sorted(wanted))}")


if __name__ == "__main__":
    sys.exit(main())
