"""@libtorch//:torch, from the first of these that applies:

1. $TORCHPS_LIBTORCH: the directory of an unpacked libtorch (it holds include/ and lib/);
2. but for --config=cuda, Debian's libtorch-dev, which is a CPU build;
3. the torch package of a Python: of $TORCHPS_PYTHON, or of .cache/torch, which deploy/setup.sh makes
   where apt has no libtorch-dev, or of python3.

Where none applies the target fails with the reason, and only what depends on it.
"""

# What Debian's packages of @system have in /usr/include. A torch wheel brings some of it too, in other
# versions (Protobuf's headers, so far). As files of the wheel these would come before Debian's, and our
# code would be compiled against another version than the one it is linked with. torch's own headers
# need none of it. tests/third_party looks whether anything has been left.
_HEADERS_OF_DEBIAN = [
    "absl",
    "benchmark",
    "curl",
    "gmock",
    "google",
    "grpc",
    "grpc++",
    "grpcpp",
    "gtest",
    "isa-l",
    "isa-l.h",
    "jconfig.h",
    "jerror.h",
    "jmorecfg.h",
    "jpeglib.h",
    "libpng16",
    "nlohmann",
    "openssl",
    "png.h",
    "pngconf.h",
    "pnglibconf.h",
    "zconf.h",
    "zlib.h",
]

_BUILD = """
load("@torchps//third_party:system_library.bzl", "missing_library", "system_library")

package(default_visibility = ["//visibility:public"])

# What the repository's include folder holds, a name a line; empty where it has none.
exports_files(["header_names"])

"""

def _missing(ctx, message):
    ctx.file("BUILD", _BUILD + 'missing_library(name = "torch", message = {})\n'.format(repr(message)))

def _from_directory(ctx, root, cuda):
    lib = ctx.path(str(root) + "/lib")
    include = ctx.path(str(root) + "/include")
    for wanted in ["lib/libtorch_cpu.so", "include/torch/csrc/api/include/torch/torch.h"]:
        if not ctx.path(str(root) + "/" + wanted).exists:
            _missing(ctx, "{} is no libtorch: it has no {}.".format(root, wanted))
            return
    if cuda and not ctx.path(str(lib) + "/libtorch_cuda.so").exists:
        _missing(ctx, "--config=cuda needs a CUDA build of torch; {} is a CPU build.".format(root))
        return

    # Our code shares std::string with Debian's gRPC and Protobuf, so the old string is no choice.
    config = ctx.path(str(root) + "/share/cmake/Torch/TorchConfig.cmake")
    if config.exists and "_GLIBCXX_USE_CXX11_ABI=0" in ctx.read(config):
        _missing(ctx, ("{} is built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0); " +
                       "take the cxx11-abi download or torch 2.7 or newer.").format(root))
        return

    # libtorch_cuda registers itself when loaded and no symbol of it is named by our code.
    libs = ["-Wl,--no-as-needed", "-ltorch_cuda", "-lc10_cuda"] if cuda else []
    libs += ["-Wl,--as-needed", "-ltorch", "-ltorch_cpu", "-lc10"]

    # Bazel takes headers from outside only as files of a repository.
    for child in include.readdir():
        if child.basename not in _HEADERS_OF_DEBIAN:
            ctx.symlink(child, "include/" + child.basename)
    ctx.file("header_names", "".join([child.basename + "\n" for child in ctx.path("include").readdir()]))
    ctx.file("BUILD", _BUILD + """
cc_library(
    name = "torch",
    textual_hdrs = glob(["include/**"]),
    defines = {},
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = {},
)
""".format(
        repr(["_GLIBCXX_USE_CXX11_ABI=1"] + (["TORCHPS_CUDA"] if cuda else [])),
        # The libraries that libtorch itself needs are found at run time by its own run path.
        repr(["-L" + str(lib), "-Wl,-rpath," + str(lib), "-Wl,--allow-shlib-undefined"] +
             libs + ["-pthread"]),
    ))

def _torch_of_python(ctx):
    """The folder of a Python's torch package, or None."""
    python = ctx.os.environ.get("TORCHPS_PYTHON", "")
    if not python:
        # Beside WORKSPACE, which lies two folders above this file.
        own = ctx.path(str(ctx.path(ctx.attr._installed_packages).dirname.dirname) + "/.cache/torch/bin/python3")
        python = str(own) if own.exists else "python3"
    found = ctx.execute([python, "-c", (
        "import importlib.util as u; s = u.find_spec('torch'); " +
        "print(list(s.submodule_search_locations)[0] if s else '')"
    )])
    return found.stdout.strip() if found.return_code == 0 else None

def _libtorch_repository_impl(ctx):
    # libtorch-dev may be installed later.
    ctx.path(ctx.attr._installed_packages)
    ctx.file("header_names")
    if ctx.attr.example:
        _from_directory(ctx, ctx.path(ctx.attr.example).dirname, cuda = False)
        return
    cuda = ctx.os.environ.get("TORCHPS_CUDA", "") == "1"
    root = ctx.os.environ.get("TORCHPS_LIBTORCH", "")
    if root:
        _from_directory(ctx, root, cuda)
        return
    include = "/usr/include/torch/csrc/api/include"
    if cuda or not ctx.path(include + "/torch/torch.h").exists:
        root = _torch_of_python(ctx)
        if root:
            _from_directory(ctx, root, cuda)
        elif cuda:
            _missing(ctx, ("--config=cuda needs a CUDA build of torch: set TORCHPS_LIBTORCH to a " +
                           "libtorch directory, or TORCHPS_PYTHON to a Python that has torch."))
        else:
            _missing(ctx, "libtorch is not installed: install Debian's package libtorch-dev or pip's " +
                          "torch (deploy/setup.sh does it), or set TORCHPS_LIBTORCH to a libtorch directory.")
        return

    # Debian's other headers and its libraries are where the compiler looks by itself.
    ctx.file("BUILD", _BUILD + """
system_library(
    name = "torch",
    linkopts = ["-Wl,--as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-pthread"],
    system_includes = ["{}"],
)
""".format(include))

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    attrs = {
        "example": attr.label(doc = "For tests: a file in the directory to take, whatever is installed."),
        "_installed_packages": attr.label(default = "//third_party:installed_packages"),
    },
    configure = True,
    environ = ["TORCHPS_CUDA", "TORCHPS_LIBTORCH", "TORCHPS_PYTHON"],
    local = True,
)
