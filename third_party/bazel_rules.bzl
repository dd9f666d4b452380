"""The rule repositories that Bazel itself asks for, taken from Debian's packages.

Bazel names rules_cc, rules_java, rules_proto, platforms and its coverage tools as downloads, Bazel 7
rules_python and rules_license too. Debian ships all but the coverage tools under /usr/share/bazel;
overriding them by name keeps every build offline.
"""

_SHARE = "/usr/share/bazel/"

# Folders that a package has had, the newest first.
_FOLDERS_OF = {
    "bazel-platforms": ["tools/platforms", "platforms"],
    "bazel-rules-cc": ["rules/cc"],
    "bazel-rules-java": ["rules/java"],
    "bazel-rules-license": ["rules/license"],
    "bazel-rules-proto": ["rules/proto"],
    "bazel-rules-python": ["rules/python"],
    "bazel-skylib": ["tools/skylib"],
}

def _debian_rules_impl(ctx):
    folders = [ctx.path(_SHARE + folder) for folder in _FOLDERS_OF[ctx.attr.package]]
    found = [folder for folder in folders if folder.exists]
    if not found:
        fail("{} is missing: install Debian's package {} (deploy/setup.sh does it).".format(
            folders[0],
            ctx.attr.package,
        ))
    source = found[0]
    result = ctx.execute(["cp", "-rL", str(source) + "/.", "."])
    if result.return_code != 0:
        fail("Copying {} failed: {}".format(source, result.stderr))
    ctx.file("WORKSPACE", 'workspace(name = "{}")\n'.format(ctx.name))

    # rules_cc 0.0.4 is newer than Bazel 4 and loads a helper that it lacks; the toolchain type which
    # the helper would return is the same.
    if "def use_cpp_toolchain" in ctx.read(ctx.attr._toolchain_utils):
        return
    for path in ctx.attr.without_use_cpp_toolchain:
        text = ctx.read(path)
        text = text.replace(', "use_cpp_toolchain")', ")")
        text = text.replace("use_cpp_toolchain()", '["@bazel_tools//tools/cpp:toolchain_type"]')
        ctx.file(path, text)

_debian_rules = repository_rule(
    implementation = _debian_rules_impl,
    attrs = {
        "package": attr.string(mandatory = True),
        "without_use_cpp_toolchain": attr.string_list(),
        "_toolchain_utils": attr.label(default = "@bazel_tools//tools/cpp:toolchain_utils.bzl"),
    },
    doc = "A copy of one of Debian's Bazel rule packages.",
)

def _coverage_stub_impl(ctx):
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")
""")

# Tests name these two targets even where no coverage is asked for.
_coverage_stub = repository_rule(implementation = _coverage_stub_impl)

def bazel_rules_from_debian():
    """Overrides each rule repository that Bazel would download."""
    _debian_rules(name = "bazel_skylib", package = "bazel-skylib")
    _debian_rules(name = "platforms", package = "bazel-platforms")
    _debian_rules(
        name = "rules_cc",
        package = "bazel-rules-cc",
        without_use_cpp_toolchain = [
            "cc/private/rules_impl/cc_flags_supplier.bzl",
            "cc/private/rules_impl/compiler_flag.bzl",
        ],
    )
    _debian_rules(name = "rules_java", package = "bazel-rules-java")
    _debian_rules(name = "rules_license", package = "bazel-rules-license")
    _debian_rules(name = "rules_proto", package = "bazel-rules-proto")
    _debian_rules(name = "rules_python", package = "bazel-rules-python")
    _coverage_stub(name = "remote_coverage_tools")
