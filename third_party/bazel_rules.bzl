"""The rule repositories that Bazel itself asks for, taken from Debian's packages.

Bazel 4.2 names rules_cc, rules_java, rules_proto, platforms and its coverage tools as downloads.
Debian ships the first four under /usr/share/bazel; overriding them by name keeps every build
offline.
"""

_SHARE = "/usr/share/bazel/"

_PACKAGE_OF = {
    "platforms": "bazel-platforms",
    "rules/cc": "bazel-rules-cc",
    "rules/java": "bazel-rules-java",
    "rules/proto": "bazel-rules-proto",
    "tools/skylib": "bazel-skylib",
}

def _debian_rules_impl(ctx):
    source = ctx.path(_SHARE + ctx.attr.directory)
    if not source.exists:
        fail("{} is missing: install Debian's package {} (deploy/setup.sh does it).".format(
            source,
            _PACKAGE_OF[ctx.attr.directory],
        ))
    result = ctx.execute(["cp", "-rL", str(source) + "/.", "."])
    if result.return_code != 0:
        fail("Copying {} failed: {}".format(source, result.stderr))
    ctx.file("WORKSPACE", 'workspace(name = "{}")\n'.format(ctx.name))

    # rules_cc 0.0.4 is newer than this Bazel and loads a helper that it lacks; the toolchain type
    # which the helper would return is the same.
    for path in ctx.attr.without_use_cpp_toolchain:
        text = ctx.read(path)
        text = text.replace(', "use_cpp_toolchain")', ")")
        text = text.replace("use_cpp_toolchain()", '["@bazel_tools//tools/cpp:toolchain_type"]')
        ctx.file(path, text)

_debian_rules = repository_rule(
    implementation = _debian_rules_impl,
    attrs = {
        "directory": attr.string(mandatory = True),
        "without_use_cpp_toolchain": attr.string_list(),
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
    _debian_rules(name = "bazel_skylib", directory = "tools/skylib")
    _debian_rules(name = "platforms", directory = "platforms")
    _debian_rules(
        name = "rules_cc",
        directory = "rules/cc",
        without_use_cpp_toolchain = [
            "cc/private/rules_impl/cc_flags_supplier.bzl",
            "cc/private/rules_impl/compiler_flag.bzl",
        ],
    )
    _debian_rules(name = "rules_java", directory = "rules/java")
    _debian_rules(name = "rules_proto", directory = "rules/proto")
    _coverage_stub(name = "remote_coverage_tools")
