#!/usr/bin/env python3
"""Checks the include lines of the tree against the architecture (docs/architecture.md, "The rooms"), and the
flags and job fields that messages and pages mention.

    deploy/check_house.py

Prints a sentence for each fault; exits with 1 if it finds any.
"""

import collections
import os
import re
import subprocess
import sys

from named_flags import check_command_lines, check_named_fields, check_named_flags

# Room -> the rooms that it may include from; anything else is forbidden. A room is a folder of torchps/ with
# sources. Tests, benchmarks and examples may include anything.
MAY_INCLUDE = {
    "proto": "",
    "common": "proto",
    "common/cpu": "common",
    "common/process": "common",
    "storage": "common common/process",
    "job/file": "common proto",
    "job": "common job/file proto",
    "transport": "common common/cpu common/process proto storage",
    "security": "common common/process",
    "checkpoint": "common proto storage transport",
    "checkpoint/pickle": "checkpoint storage",
    # The file readers do not use libtorch; data/ makes data sets from their results.
    "data/file": "",
    "data/image": "common data/file",
    "data/table": "common data/file proto",
    "data/text": "common",
    "data": "common data/file data/image data/table data/text proto storage",
    # The parts of a server. The coordinator is a separate component in the same process: it sees neither
    # values nor pushes.
    "server/optimizer": "common common/cpu job proto",
    "server/parked": "common",
    "server/rpc": "common common/process security transport",
    "server/coordinator":
        "checkpoint common common/process job proto security server/parked server/rpc storage "
        "transport",
    "server/store": "checkpoint common common/cpu job proto server/optimizer transport",
    "server/push_log":
        "checkpoint common common/process proto server/parked server/store storage transport",
    "server/backup": "common proto server/parked storage transport",
    "server/job":
        "checkpoint common common/process job proto server/backup server/parked server/push_log "
        "server/store storage transport",
    "server/data_plane":
        "common proto security server/backup server/job server/parked server/rpc transport",
    "server":
        "common proto security server/backup server/coordinator server/data_plane server/job "
        "server/rpc storage transport",
    # The parts of a worker, without libtorch and with it.
    "client/calls": "common proto security transport",
    "client": "client/calls common common/cpu job proto transport",
    "worker/loop": "client common job proto",
    "worker/device": "client common proto transport worker/kernels",
    "worker/cuda":
        "common common/process proto transport worker/device worker/feed worker/gradient "
        "worker/kernels",
    "worker/gradient": "common common/cpu",
    "worker/kernels": "common common/process transport worker/gradient",
    "worker/feed": "common data",
    "worker/precision": "proto",
    "worker/stages": "common proto worker/precision",
    # Trains, but does not call servers; worker/slot does.
    "worker":
        "checkpoint checkpoint/pickle common common/cpu data job proto storage transport "
        "worker/cuda worker/device worker/feed worker/gradient worker/loop worker/precision "
        "worker/stages",
    "worker/slot":
        "client client/calls common data job proto transport worker worker/device worker/feed "
        "worker/gradient worker/loop worker/precision worker/stages",
    "worker/replicas": "common common/process worker worker/feed worker/loop worker/slot",
    "worker/models": "common data job proto worker worker/replicas worker/stages",
    "worker/pipeline":
        "client client/calls common common/cpu data job proto transport worker worker/feed "
        "worker/gradient worker/loop worker/precision worker/slot worker/stages",
    # Uses both client and server.
    "program/pipeline":
        "client/calls common common/process proto security server/rpc transport worker "
        "worker/pipeline worker/slot worker/stages",
    "program":
        "client client/calls common common/process data job proto security server storage "
        "transport worker worker/loop worker/precision worker/slot worker/stages",
    # The commands of psctl: a room for each that needs several files.
    "tools/base": "common common/process",
    "tools/report":
        "common common/process job proto security tools/base tools/run_folder transport",
    "tools/run_folder": "common common/process proto storage tools/base",
    "tools/run_plan": "common common/process job proto tools/base tools/report tools/run_folder",
    "tools/run":
        "common common/process data job proto security storage tools/base tools/report "
        "tools/run_folder tools/run_plan",
    "tools/runs": "common/process job proto storage tools/base tools/report tools/run_folder",
    "tools/drill":
        "common common/process proto storage tools/base tools/report tools/run tools/run_plan "
        "transport",
    "tools/doctor":
        "common common/process data data/image data/table data/text job proto security tools/base "
        "tools/run_folder tools/run_plan transport",
    "tools":
        "checkpoint common common/process security storage tools/base tools/report tools/run_folder",
    # What programs include, and the main functions of ps_server, ps_worker and psctl.
    "torchps":
        "common common/process data job program program/pipeline proto security server storage "
        "tools tools/base tools/doctor tools/drill tools/report tools/run tools/run_plan "
        "tools/runs transport worker worker/loop worker/models worker/replicas worker/slot "
        "worker/stages",
}
# Rooms that may include torch's headers.
WITH_LIBTORCH = {
    "data", "worker", "worker/cuda", "worker/feed", "worker/gradient", "worker/pipeline",
    "worker/models", "", "worker/precision", "worker/replicas", "worker/slot",
    "worker/stages", "program", "program/pipeline", "torchps"
}
SUBJECTS_SINCE = "2026-11-28T11:00:00Z"
OLD_NAMES = """
    boot_id server_life JobPlace ServerPlaces CopyPlace RememberedPlace StepBooks SlotBooks RollbackBooks EpochBooks
    CopyDesk CopyKeeper CopyMirror CopySender CopyFetch CopyPeer JobCopies CopiesWatch Strangers StandAside
    KnownConnections Handshakes FrontDoor TurnLine Farewells SayGoodbye Housekeeping KeepHouse RisingNumber ReadyReplies
    Making ModelLook LookAtModel Gathering Meeting MeetRequest ParcelPost Parcel Pulse Handicap LeaseInHand TakeUp
    LayDown PutBack BeginAnew TakeLearnt PullAhead HeldValues HeldOutput ServerPatience AddressBook BatchLift CudaLift
    ValueInbox DeviceLook BlockLook UseLook WhatRuns HowToGoOn DoHarm TellWhoWaits IsThisHost IsOfLaterCourse GoOnAs
    RaiseFloor HeldUpBy GoneSlot kMost
"""
FREE = re.compile(r"^(tests|bench|examples|third_party)(/|$)")
SOURCE = re.compile(r"\.(h|cc|cu|proto)$")


def tracked():
    listed = subprocess.run(["git", "ls-files"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [path for path in listed.split("\n") if os.path.isfile(path)]


def room_of(path):
    return os.path.dirname(path).removeprefix("torchps/")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def arrows(paths):
    """Yields (file, room, included room) for the rooms of the product."""
    for path in paths:
        room = room_of(path)
        if FREE.match(room):
            continue
        for included in re.findall(r'^(?:#include|import) "([^"]+)"', read(path), re.MULTILINE):
            other = room_of(included)
            if other != room and os.path.isdir(os.path.dirname(included)):
                yield path, room, other


def check_arrows(paths):
    unused = {(room, other) for room, others in MAY_INCLUDE.items() for other in others.split()}
    for path, room, other in arrows(paths):
        unused.discard((room, other))
        if room not in MAY_INCLUDE:
            yield f"{path}: unknown room {room}; list in deploy/check_house.py what it may include"
        elif other not in MAY_INCLUDE[room].split():
            yield f"{path}: {room} may not include from {other}"
    for room, other in sorted(unused):
        yield f"deploy/check_house.py: {room} no longer includes from {other}; remove that entry"


def check_order():
    """Checks that the includes between rooms do not form a cycle."""
    below = {}

    def visit(room, way):
        if room in way:
            return [" -> ".join([*way[way.index(room):], room])]
        if room not in below:
            below[room] = [circle for other in MAY_INCLUDE.get(room, "").split()
                           for circle in visit(other, [*way, room])]
        return below[room]

    for circle in sorted({circle for room in MAY_INCLUDE for circle in visit(room, [])}):
        yield f"the rooms form a cycle: {circle}"


def check_libtorch(paths):
    for path in paths:
        room = room_of(path)
        if FREE.match(room) or room in WITH_LIBTORCH:
            continue
        if re.search(r'^#include ["<](torch|ATen|c10)/', read(path), re.MULTILINE):
            yield f"{path}: {room} may not see libtorch"


def check_names(paths):
    """Checks that no two headers define the same class, struct or enum: in one program they would collide."""
    places = collections.defaultdict(set)
    for path in paths:
        if not path.endswith(".h"):
            continue
        namespace = ""
        for line in read(path).splitlines():
            opened = re.match(r"namespace ([\w:]*) ?\{", line)
            if opened:
                namespace = opened.group(1)
            # Only at the left edge, because nested types are indented.
            defined = re.match(
                r"(?:template <.*> )?(?:class|struct|enum class|enum)(?: \[\[\w+\]\]| alignas\(\w+\))? "
                r"(\w+)(?!::|\w)[^;]*\{?$", line)
            if defined and not line.endswith(";"):
                places[namespace, defined.group(1)].add(path)
    for (namespace, name), headers in sorted(places.items()):
        if len(headers) > 1:
            yield f"{namespace}::{name} is defined in {' and '.join(sorted(headers))}"


def check_old_names(paths):
    """Names that were replaced by the field's terms do not come back."""
    old = re.compile(rf"\b({'|'.join(OLD_NAMES.split())})\b")
    for path in paths:
        for number, line in enumerate(read(path).splitlines(), 1):
            found = old.search(line)
            if found:
                yield f"{path}:{number}: {found.group(1)} is an old name; see OLD_NAMES in deploy/check_house.py"


def check_subjects():
    """Commit subjects name an area and say in the imperative what changes."""
    log = subprocess.run(["git", "log", f"--since={SUBJECTS_SINCE}", "--no-merges", "--format=%h %s"],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in log.splitlines():
        commit, subject = line.split(" ", 1)
        if len(subject) > 65 or not re.match(r"[\w./, ]+: [a-z]", subject):
            yield f"commit {commit}: the subject is not 'area: verb ...' in at most 65 characters: {subject}"


def check_warnings(paths):
    """Checks that .bazelrc lists all folders of this tree, for which warnings are errors."""
    ours = re.search(r"^build --per_file_copt=\.\*,-(\S+)@-Wno-error$", read(".bazelrc"), re.MULTILINE)
    forgotten = set()
    for path in paths:
        folder, name = os.path.split(path)
        if not name.endswith((".cc", ".proto")) or folder in ("examples/bazel", "examples/cmake"):
            continue
        if not ours or not all(re.search(ours.group(1), way) for way in (path, f"//{folder}:{name}")):
            forgotten.add(folder)
    for folder in sorted(forgotten):
        yield f"{folder} is compiled without -Werror; list it where .bazelrc says -Wno-error"


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    files = tracked()
    paths = [path for path in files if SOURCE.search(path)]
    wrong = [*check_arrows(paths), *check_order(), *check_libtorch(paths),
             *check_names(paths), *check_old_names(paths),
             *check_subjects(), *check_warnings(paths), *check_named_flags(files),
             *check_command_lines(files), *check_named_fields(files)]
    for sentence in wrong:
        print(f"check_house.py: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
