"""torchps: distributed training for C++ libtorch programs. This package contains its programs and its C++ library."""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def cmake_prefix():
    """Returns the folder for CMAKE_PREFIX_PATH, with which find_package(torchps) finds headers and library."""
    return _FOLDER


def _run(program):
    site = os.path.dirname(_FOLDER)
    if not os.path.exists(os.path.join(site, "torch", "lib", "libtorch_cpu.so")):
        sys.exit(f"{program}: torch is not in {site}; install torch and torchps into the same environment.")
    path = os.path.join(_FOLDER, "bin", program)
    os.execv(path, [path, *sys.argv[1:]])


def psctl():
    _run("psctl")


def ps_server():
    _run("ps_server")


def ps_worker():
    _run("ps_worker")
