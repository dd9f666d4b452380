"""torchps_proto_library: a C++ library from .proto files, by Debian's protoc and gRPC plugin."""

_ProtoSources = provider(
    doc = "The .proto files that an importer needs to see.",
    fields = {"transitive": "depset of File"},
)

def _generate_impl(ctx):
    transitive = depset(
        ctx.files.srcs,
        transitive = [dep[_ProtoSources].transitive for dep in ctx.attr.deps],
    )
    headers = []
    sources = []
    for src in ctx.files.srcs:
        stem = src.basename[:-len(".proto")]
        kinds = [".pb"] + ([".grpc.pb"] if ctx.attr.grpc else [])
        for kind in kinds:
            headers.append(ctx.actions.declare_file(stem + kind + ".h"))
            sources.append(ctx.actions.declare_file(stem + kind + ".cc"))

    # Imports are named from the root of the tree, as includes are. In another workspace the tree is
    # external/torchps, and what is generated lies in a folder of that name.
    root = ctx.label.workspace_root
    out = ctx.bin_dir.path + ("/" + root if root else "")
    args = ctx.actions.args()
    args.add("--proto_path=" + (root or "."))
    args.add("--cpp_out=" + out)
    if ctx.attr.grpc:
        args.add("--grpc_out=" + ("generate_mock_code=true:" if ctx.attr.mocks else "") + out)
        args.add(ctx.executable._grpc_plugin, format = "--plugin=protoc-gen-grpc=%s")
    args.add_all(ctx.files.srcs)
    if ctx.attr.mocks:
        headers += [
            ctx.actions.declare_file(src.basename[:-len(".proto")] + "_mock.grpc.pb.h")
            for src in ctx.files.srcs
        ]
    ctx.actions.run(
        executable = ctx.executable._protoc,
        arguments = [args],
        inputs = transitive,
        tools = [ctx.executable._grpc_plugin],
        outputs = headers + sources,
        mnemonic = "ProtoCompile",
        progress_message = "Generating C++ from %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset(headers + sources)),
        OutputGroupInfo(headers = depset(headers), sources = depset(sources)),
        _ProtoSources(transitive = transitive),
    ]

_generate = rule(
    implementation = _generate_impl,
    attrs = {
        "deps": attr.label_list(providers = [_ProtoSources]),
        "grpc": attr.bool(),
        "mocks": attr.bool(),
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "_grpc_plugin": attr.label(
            default = "@system//:grpc_cpp_plugin",
            allow_single_file = True,
            cfg = "exec",
            executable = True,
        ),
        "_protoc": attr.label(
            default = "@system//:protoc",
            allow_single_file = True,
            cfg = "exec",
            executable = True,
        ),
    },
)

def torchps_proto_library(name, srcs, deps = [], grpc = False, mocks = False, **kwargs):
    """A cc_library of the code generated from .proto files.

    Args:
      name: the cc_library; includes are "folder/file.pb.h" and "folder/file.grpc.pb.h".
      srcs: .proto files of this package; they import by paths from the root of the tree.
      deps: other torchps_proto_library targets whose files are imported.
      grpc: also generate the services' stubs and bases.
      mocks: also generate "file_mock.grpc.pb.h" (with grpc only).
      **kwargs: as for cc_library (visibility, tags, testonly).
    """
    generated = name + "_generated"
    _generate(
        name = generated,
        srcs = srcs,
        deps = [_absolute(dep) + "_generated" for dep in deps],
        grpc = grpc,
        mocks = mocks,
        visibility = ["//visibility:public"],
        testonly = kwargs.get("testonly", False),
    )
    native.filegroup(
        name = name + "_headers",
        srcs = [generated],
        output_group = "headers",
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    native.filegroup(
        name = name + "_sources",
        srcs = [generated],
        output_group = "sources",
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [name + "_sources"],
        hdrs = [name + "_headers"],
        # What protoc writes is not ours to tidy.
        copts = ["-w"],
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
        **kwargs
    )

def _absolute(label):
    """The label with its package and its name written out."""
    if label.startswith(":"):
        return "//" + native.package_name() + label
    if not label.startswith("//") and not label.startswith("@"):
        return "//" + native.package_name() + ":" + label
    if ":" not in label:
        return label + ":" + label.split("/")[-1]
    return label
