#!/usr/bin/env python3
"""Compares CMakeLists.txt with Bazel's BUILD files: the sources, their options, and which of them see libtorch.

    deploy/check_cmake.py

Compiles nothing: runs `bazel query` and configures with CMake. Prints a sentence for each difference; exits with 1 if
it finds any.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAMS_WITHOUT_LIBTORCH = ["//torchps:psctl", "//torchps:ps_server"]
PRODUCTS = [*PROGRAMS_WITHOUT_LIBTORCH, "//torchps:ps_worker", "//torchps:shared"]
# The targets of CMake whose sources may include libtorch's headers.
WITH_LIBTORCH = ["torchps_torch", "ps_worker"]
KERNEL_TEXTS = "//torchps/worker/kernels:texts"

# Sources that are compiled together. `owner` is a label of Bazel or a target of CMake.
Unit = collections.namedtuple("Unit", "owner sources options with_libtorch")


def path_of(label):
    return label.removeprefix("//").replace(":", "/")


def values(rule, attribute):
    found = rule.find(f"list[@name='{attribute}']")
    return [] if found is None else [value.get("value") for value in found]


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"check_cmake.py: '{' '.join(command)}' failed:\n{done.stderr[-2000:]}")
    return done.stdout


def bazel_rules():
    """Returns the rules that the products depend on, by label."""
    query = f"deps({' + '.join(PRODUCTS)})"
    text = run("bazel", "query", "--noshow_progress", "--output=xml", query)
    return {rule.get("name"): rule for rule in xml.etree.ElementTree.fromstring(text).iter("rule")}


def reached(rules, labels):
    """Returns the labels and the rules below them."""
    found = set()
    pending = list(labels)
    while pending:
        label = pending.pop()
        if label in rules and label not in found:
            found.add(label)
            pending += [needed.get("name") for needed in rules[label].iter("rule-input")]
    return found


def bazel_units(rules):
    units = []
    for label, rule in rules.items():
        if not label.startswith("//torchps") or rule.get("class") == "_all_sources":
            continue
        sources = [source.get("value") for source in rule.findall("list[@name='srcs']//label")]
        # third_party/cc_library.bzl puts the sources into a rule of their own.
        sources += [source for name in sources if name in rules and rules[name].get("class") == "_all_sources"
                    for source in values(rules[name], "srcs")]
        sources = [path_of(name) for name in sources if name.endswith((".cc", ".proto"))]
        # Only with --stamp; CMake writes the commit into version_text.cc.
        sources = [path for path in sources if not path.endswith("/stamped_version_text.cc")]
        if sources:
            units.append(Unit(label, sources, values(rule, "copts"), "libtorch" in values(rule, "tags")))
    return units


def cmake_units():
    root = os.getcwd()
    units = []
    with tempfile.TemporaryDirectory() as build:
        run("cmake", "-S", root, "-B", build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
        for command in commands:
            sources = [command["file"]]
            if "/Unity/" in command["file"]:
                with open(command["file"], encoding="utf-8") as file:
                    sources = re.findall(r'^#include "([^"]+)"', file.read(), re.MULTILINE)
            sources = [path.removeprefix(build + "/").removeprefix(root + "/") for path in sources]
            sources = [re.sub(r"(\.grpc)?\.pb\.cc$", ".proto", path) for path in sources]
            target = re.search(r"CMakeFiles/(\w+)\.dir/", command["command"]).group(1)
            units.append(Unit(target, sources, command["command"].split(), target in WITH_LIBTORCH))
    return units


def compare(bazel, cmake, without_libtorch):
    """Yields a sentence for each difference. `without_libtorch`: labels that programs without libtorch link."""
    expected = {source: unit for unit in bazel for source in unit.sources}
    actual = {source: unit for unit in cmake for source in unit.sources}
    for source in sorted(expected.keys() - actual.keys()):
        yield f"{source} is in {expected[source].owner}, but CMake does not compile it"
    for source in sorted(actual.keys() - expected.keys()):
        yield f"CMake compiles {source}, but no program or library of Bazel contains it"
    for source in sorted(expected.keys() & actual.keys()):
        theirs, ours = expected[source], actual[source]
        if theirs.with_libtorch and not ours.with_libtorch:
            yield f"{source} sees libtorch, but CMake has it in {ours.owner}, not in {WITH_LIBTORCH[0]}"
        if theirs.owner in without_libtorch and ours.with_libtorch:
            yield f"{source} is in a program without libtorch, but CMake has it in {ours.owner}"
        missing = [option for option in theirs.options if option not in ours.options and option != "-w"]
        if missing:
            yield f"CMake compiles {source} without {' '.join(missing)}"
        together = [other for other in ours.sources if other in expected and expected[other] is not theirs]
        if together:
            yield f"CMake compiles {source} and {together[0]} as one unit, Bazel does not; list them as `alone`"


def check_kernel_texts(rules, text):
    """Checks that CMake embeds the headers that Bazel embeds."""
    text = text.replace("${kernels}", "torchps/worker/kernels")
    for label in values(rules[KERNEL_TEXTS], "srcs"):
        if f" {path_of(label)}" not in text:
            yield f"{path_of(label)} is in {KERNEL_TEXTS}, but not in kernel_texts of CMakeLists.txt"


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    rules = bazel_rules()
    with open("CMakeLists.txt", encoding="utf-8") as file:
        text = file.read()
    wrong = [*compare(bazel_units(rules), cmake_units(), reached(rules, PROGRAMS_WITHOUT_LIBTORCH)),
             *check_kernel_texts(rules, text)]
    for sentence in wrong:
        print(f"check_cmake.py: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
