"""@system: the C++ libraries and code generators of the machine, found by pkg-config.

A library that is not there becomes a target that says which Debian package has it; only what
depends on it fails.
"""

# name: (Debian package, pkg-config modules, names of @system targets it depends on).
_LIBRARIES = {
    "absl": ("libabsl-dev", [
        "absl_bind_front",
        "absl_cleanup",
        "absl_cord",
        "absl_failure_signal_handler",
        "absl_flat_hash_map",
        "absl_flat_hash_set",
        "absl_function_ref",
        "absl_hash",
        "absl_random_random",
        "absl_span",
        "absl_stacktrace",
        "absl_status",
        "absl_statusor",
        "absl_str_format",
        "absl_strings",
        "absl_symbolize",
        "absl_synchronization",
        "absl_time",
    ], []),
    # Debian has these as archives only: they belong into a main and nowhere else, for a flag that
    # is linked in twice ends the process at its start.
    "absl_flags": ("libabsl-dev", [
        "absl_flags",
        "absl_flags_parse",
        "absl_flags_usage",
    ], ["absl"]),
    "benchmark": ("libbenchmark-dev", ["benchmark"], []),
    "curl": ("libcurl4-openssl-dev", ["libcurl"], []),
    "grpc": ("libgrpc++-dev", ["grpc++"], ["absl", "protobuf"]),
    "gtest": ("libgmock-dev", ["gmock", "gtest"], []),
    "gtest_main": ("libgtest-dev", ["gtest_main"], ["gtest"]),
    "isal": ("libisal-dev", ["libisal"], []),
    "jpeg": ("libjpeg-dev", ["libjpeg"], []),
    "nlohmann_json": ("nlohmann-json3-dev", ["nlohmann_json"], []),
    "openssl": ("libssl-dev", ["openssl"], []),
    "png": ("libpng-dev", ["libpng"], []),
    "protobuf": ("libprotobuf-dev", ["protobuf"], []),
    "yaml": ("libyaml-dev", ["yaml-0.1"], []),
    "zlib": ("zlib1g-dev", ["zlib"], []),
}

_TOOLS = {
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "protoc": "protobuf-compiler",
}

def _flags(ctx, pkg_config, option, modules):
    result = ctx.execute([pkg_config, option] + modules)
    if result.return_code != 0:
        return None
    return [flag for flag in result.stdout.strip().split(" ") if flag]

def _library(ctx, pkg_config, name):
    package, modules, deps = _LIBRARIES[name]
    libs = _flags(ctx, pkg_config, "--libs", modules)
    if libs == None:
        return 'missing_library(name = "{}", message = "{} is not installed: install Debian\'s package {} (deploy/setup.sh does it).")\n'.format(
            name,
            name,
            package,
        )
    cflags = _flags(ctx, pkg_config, "--cflags", modules)

    # --as-needed comes with each library, for Bazel's own toolchain begins with the opposite.
    # -lgmock and -lgtest name each other's needs in any order only inside a group.
    linkopts = ["-Wl,--as-needed", "-Wl,--start-group"] + libs + ["-Wl,--end-group", "-pthread"]
    return 'system_library(name = "{}", defines = {}, system_includes = {}, linkopts = {}, deps = {})\n'.format(
        name,
        repr([flag[2:] for flag in cflags if flag.startswith("-D")]),
        repr([flag[2:] for flag in cflags if flag.startswith("-I")]),
        repr(linkopts if libs else []),
        repr([":" + dep for dep in deps]),
    )

def _system_repository_impl(ctx):
    # What is installed, removed or changed later is noticed by this file's content.
    ctx.path(ctx.attr._installed_packages)
    pkg_config = ctx.which("pkg-config")
    if not pkg_config:
        fail("pkg-config is missing: install Debian's package pkg-config (deploy/setup.sh does it).")
    text = 'load("@torchps//third_party:system_library.bzl", "missing_library", "system_library")\n\n'
    text += 'package(default_visibility = ["//visibility:public"])\n\n'
    for name in sorted(_LIBRARIES):
        text += _library(ctx, pkg_config, name)
    for tool in sorted(_TOOLS):
        path = ctx.which(tool)
        if not path:
            fail("{} is missing: install Debian's package {} (deploy/setup.sh does it).".format(
                tool,
                _TOOLS[tool],
            ))

        # A script, not a symbolic link: protoc looks for its own protos beside its real place.
        ctx.file(tool, '#!/bin/sh\nexec {} "$@"\n'.format(path))
        text += 'exports_files(["{}"])\n'.format(tool)
    packages = sorted({package: True for package, _, _ in _LIBRARIES.values()})
    ctx.file("packages", "".join([package + "\n" for package in packages]))
    text += '# The Debian packages of the libraries, a name a line.\nexports_files(["packages"])\n'
    ctx.file("BUILD", text)

system_repository = repository_rule(
    implementation = _system_repository_impl,
    attrs = {"_installed_packages": attr.label(default = "//third_party:installed_packages")},
    configure = True,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
