#!/usr/bin/env python3
"""Packs a folder into a wheel, and prints its path.

    deploy/install/make_wheel.py --torch=FOLDER ROOT OUT

ROOT contains the package torchps/; its share/ goes into share/ of the environment. The wheel depends on the torch
release in FOLDER, the folder torch of a pip installation, because libtorch's binary interface changes with each minor
version. Files get the time $SOURCE_DATE_EPOCH. Run it in the root of the tree.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import zipfile

# glibc 2.X: manylinux_2_35 is the oldest with the C++ library of Debian 12's GCC; 2.36 is Debian 12's.
OLDEST_GLIBC = 35
NEWEST_GLIBC = 36
METADATA = """\
Metadata-Version: 2.1
Name: torchps
Version: {version}
Summary: Distributed training for C++ libtorch programs: asynchronous within a staleness bound, survives crashes
License: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Requires-Python: >=3.9
Requires-Dist: torch=={torch}.*
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: deploy/package.sh
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[console_scripts]
psctl = torchps:psctl
ps_server = torchps:ps_server
ps_worker = torchps:ps_worker
"""


def needed_glibc(root):
    """Returns the minor version of the oldest glibc that runs all files."""
    binaries = [str(path) for path in sorted(root.rglob("*"))
                if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF"]
    symbols = subprocess.run(["objdump", "-T", *binaries], check=True, stdout=subprocess.PIPE, text=True).stdout
    return max(OLDEST_GLIBC, *(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols)))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--torch", type=pathlib.Path, required=True)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()

    glibc = needed_glibc(options.root)
    if glibc > NEWEST_GLIBC:
        sys.exit(f"make_wheel.py: these programs need glibc 2.{glibc}, expected at most 2.{NEWEST_GLIBC}: "
                 "make the wheel on Debian 12.")
    version = pathlib.Path("VERSION").read_text(encoding="utf-8").strip()
    torch_version = (options.torch / "version.py").read_text(encoding="utf-8")
    torch = re.search(r"__version__ = '(\d+\.\d+)\.", torch_version).group(1)
    tag = f"py3-none-manylinux_2_{glibc}_{platform.machine()}"
    info = f"torchps-{version}.dist-info"
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]

    # Path in the wheel -> contents and mode.
    files = {}
    for path in options.root.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(options.root))
            if name.startswith("torchps/share/"):
                name = f"torchps-{version}.data/data/" + name.removeprefix("torchps/")
            files[name] = (path.read_bytes(), path.stat().st_mode)
    for name in ("LICENSE", "NOTICE"):
        files[f"{info}/{name}"] = files.pop(f"torchps/{name}")
    for name, text in (("METADATA", METADATA.format(version=version, torch=torch)),
                       ("WHEEL", WHEEL.format(tag=tag)), ("entry_points.txt", ENTRY_POINTS)):
        files[f"{info}/{name}"] = (text.encode(), 0o100644)
    record = ""
    for name, (contents, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(contents)}\n"
    record += f"{info}/RECORD,,\n"

    place = options.out / f"torchps-{version}-{tag}.whl"
    # pip expects the metadata at the end.
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (contents, mode) in [*sorted(files.items(), key=lambda file: (file[0].startswith(info), file[0])),
                                       (f"{info}/RECORD", (record.encode(), 0o100644))]:
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = mode << 16
            wheel.writestr(entry, contents)
    print(place)


main()
