"""Rules for libraries that are installed on the machine and not built by Bazel."""

def _system_library_impl(ctx):
    compilation = cc_common.create_compilation_context(
        defines = depset(ctx.attr.defines),
        system_includes = depset(ctx.attr.system_includes),
    )
    linking = cc_common.create_linking_context(
        linker_inputs = depset([cc_common.create_linker_input(
            owner = ctx.label,
            user_link_flags = depset(ctx.attr.linkopts),
        )]),
    )
    own = CcInfo(compilation_context = compilation, linking_context = linking)
    return [cc_common.merge_cc_infos(
        direct_cc_infos = [own],
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )]

system_library = rule(
    implementation = _system_library_impl,
    attrs = {
        "defines": attr.string_list(doc = "Preprocessor definitions for all dependents."),
        "deps": attr.label_list(providers = [CcInfo]),
        "linkopts": attr.string_list(doc = "Linker flags for every binary above."),
        "system_includes": attr.string_list(
            doc = "Absolute directories, searched by -isystem: no warnings, no sandboxed copies.",
        ),
    },
    provides = [CcInfo],
    doc = "An installed library; unlike cc_library it can name header directories anywhere.",
)

def _missing_library_impl(ctx):
    fail(ctx.attr.message)

missing_library = rule(
    implementation = _missing_library_impl,
    attrs = {"message": attr.string(mandatory = True)},
    provides = [CcInfo],
    doc = "Stands for a library that is not installed; fails only where something depends on it.",
)
