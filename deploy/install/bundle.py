#!/usr/bin/env python3
"""Makes an installed prefix independent of the distribution's packages.

    deploy/install/bundle.py [--torch=FOLDER] PREFIX

Copies the shared libraries that PREFIX/bin and PREFIX/lib need into PREFIX/lib, except glibc's, and lets all find each
other by RUNPATH. With --torch, the folder torch of a pip installation, leaves torch's libraries and the compiler's out:
the prefix then lies beside the folder torch in site-packages.

PREFIX/licenses gets the copyright files of the Debian packages that the libraries come from. PREFIX/NOTICE, which must
exist, gets a list of them.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

GLIBC = r"ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl|mvec|thread_db|BrokenLocale|nss_\w+)"
TORCH = r"lib(torch|c10|shm|gomp).*"
COMPILER = r"lib(stdc\+\+|gcc_s)"
# Compiled into the programs, so no library shows them.
HEADERS_ONLY = ["nlohmann-json3-dev"]
# The headers below include/google and include/absl.
HEADERS = ["libprotobuf-dev", "libabsl-dev"]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(path):
    return re.findall(r"^ *NEEDED +(\S+)", run("objdump", "-p", str(path)), re.MULTILINE)


def closure(programs, left_out):
    """Returns {name: path} of the shared libraries that the programs need."""
    found = {}
    for program in programs:
        places = dict(re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", str(program)), re.MULTILINE))
        open_paths = [program]
        while open_paths:
            for name in needed(open_paths.pop()):
                if name in found or left_out.match(name):
                    continue
                if name not in places:
                    sys.exit(f"bundle.py: {program} needs {name}, which is not installed.")
                found[name] = places[name]
                open_paths.append(places[name])
    return found


def owners(places):
    """Returns the Debian packages that own the files."""
    places = {str(pathlib.Path(place).resolve()).removeprefix("/usr") for place in places}
    # dpkg may list a file by its path before the /usr merge.
    found = subprocess.run(["dpkg-query", "--search", *places, *("/usr" + place for place in places)],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    lines = re.findall(r"^([^:\n]+):.* (/\S+)$", found, re.MULTILINE)
    owner_of = {path.removeprefix("/usr"): owner for owner, path in lines}
    unknown = sorted(places - owner_of.keys())
    if unknown:
        sys.exit(f"bundle.py: no Debian package owns {', '.join(unknown)}, so the licence is unknown.")
    return {owner_of[place] for place in places}


def add_licenses(prefix, packages):
    folder = prefix / "licenses"
    folder.mkdir()
    lines = []
    for package in sorted(packages):
        text = pathlib.Path("/usr/share/doc", package, "copyright").read_text(encoding="utf-8", errors="replace")
        (folder / package).write_text(text, encoding="utf-8")
        for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text):
            source = pathlib.Path("/usr/share/common-licenses", name)
            if source.is_file():
                shutil.copyfile(source, folder / name)
        names = sorted(set(re.findall(r"^License: *(\S.*)", text, re.MULTILINE)))
        version = run("dpkg-query", "--show", "--showformat=${Version}\n", package).splitlines()[0]
        lines.append(f"{package} {version}: {', '.join(names) or 'see its file'}\n")
    with open(prefix / "NOTICE", "a", encoding="utf-8") as notice:
        notice.write("\nThis package contains files of these Debian packages. The folder licenses has their copyright\n"
                     "files; the licences below are those of the whole source package.\n\n")
        notice.writelines(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--torch")
    parser.add_argument("prefix", type=pathlib.Path)
    options = parser.parse_args()
    lib = options.prefix / "lib"
    programs = sorted((options.prefix / "bin").iterdir())
    own = sorted(path for path in lib.glob("*.so*") if not path.is_symlink()) if lib.exists() else []
    lib.mkdir(exist_ok=True)

    left_out = [GLIBC] + ([TORCH, COMPILER] if options.torch else [])
    found = closure(programs + own, re.compile(rf"({'|'.join(left_out)})\."))
    for name, place in sorted(found.items()):
        shutil.copyfile(place, lib / name)
        (lib / name).chmod(0o644)
    beside = ":$ORIGIN/../../torch/lib" if options.torch else ""
    for program in programs:
        run("patchelf", "--set-rpath", "$ORIGIN/../lib" + beside, str(program))
    for library in own + [lib / name for name in found]:
        run("patchelf", "--set-rpath", "$ORIGIN" + beside, str(library))
    add_licenses(options.prefix, owners(found.values()) | set(HEADERS_ONLY) | set(HEADERS if options.torch else []))


main()
