"""torchps_shared_library: libraries of the tree, whole, as one shared object.

Bazel's own cc_binary(linkshared = True) takes of an archive only what something in it asks for, and
here everything that asks is outside.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _whole(ctx, linker_input, toolchain, features):
    libraries = [
        cc_common.create_library_to_link(
            actions = ctx.actions,
            alwayslink = True,
            cc_toolchain = toolchain,
            feature_configuration = features,
            pic_static_library = library.pic_static_library or library.static_library,
        )
        for library in linker_input.libraries
    ]
    return cc_common.create_linker_input(
        additional_inputs = depset(linker_input.additional_inputs),
        libraries = depset(libraries),
        owner = linker_input.owner,
        user_link_flags = depset(linker_input.user_link_flags),
    )

def _shared_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        cc_toolchain = toolchain,
        ctx = ctx,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    inputs = [
        _whole(ctx, linker_input, toolchain, features)
        for linker_input in merged.linking_context.linker_inputs.to_list()
    ]
    linked = cc_common.link(
        actions = ctx.actions,
        cc_toolchain = toolchain,
        feature_configuration = features,
        linking_contexts = [cc_common.create_linking_context(linker_inputs = depset(inputs, order = "topological"))],
        name = ctx.attr.library,
        output_type = "dynamic_library",
        user_link_flags = ["-Wl,-soname,lib{}.so.{}".format(ctx.attr.library, ctx.attr.soversion)],
    )
    library = linked.library_to_link.resolved_symlink_dynamic_library or linked.library_to_link.dynamic_library
    return [DefaultInfo(files = depset([library]))]

torchps_shared_library = rule(
    implementation = _shared_library_impl,
    attrs = {
        "deps": attr.label_list(mandatory = True, providers = [CcInfo]),
        "library": attr.string(mandatory = True),
        "soversion": attr.string(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    doc = "lib<library>.so of the deps and all that they need of this tree, with the SONAME lib<library>.so.<soversion>.",
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
