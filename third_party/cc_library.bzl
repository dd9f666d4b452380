"""torchps_cc_library and torchps_cc_test: the sources of a target, compiled as one translation unit.

Most of the time that a source takes to compile goes into the headers of libtorch, gRPC and Protobuf. The
sources of a folder include mostly the same ones, and together they are compiled once. A name in an
anonymous namespace is therefore unique in its target.
"""

def _all_sources_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".cc")
    root = ctx.label.workspace_root  # empty unless another workspace builds this one
    paths = [src.path[len(root) + 1:] if root else src.path for src in ctx.files.srcs]
    ctx.actions.write(out, "".join(['#include "{}"\n'.format(path) for path in paths]))
    included = cc_common.create_compilation_context(headers = depset(ctx.files.srcs))
    return [DefaultInfo(files = depset([out])), CcInfo(compilation_context = included)]

_all_sources = rule(
    implementation = _all_sources_impl,
    attrs = {"srcs": attr.label_list(allow_files = [".cc"])},
    doc = "A source that includes others.",
)

def _as_one(rule, name, srcs, deps, **kwargs):
    sources = name + "_sources"
    _all_sources(
        name = sources,
        srcs = [src for src in srcs if src.endswith(".cc")],
        visibility = ["//visibility:private"],
    )
    rule(
        name = name,
        srcs = [":" + sources] + [src for src in srcs if not src.endswith(".cc")],
        deps = [":" + sources] + deps,
        **kwargs
    )

def torchps_cc_library(name, srcs, deps = [], **kwargs):
    """A cc_library, with the same arguments."""
    _as_one(native.cc_library, name, srcs, deps, **kwargs)

def torchps_cc_test(name, srcs, deps = [], **kwargs):
    """A cc_test, with the same arguments."""
    _as_one(native.cc_test, name, srcs, deps, **kwargs)
