"""@system and @libtorch for MODULE.bazel. Bazel 4 has no module extensions and does not read this file."""

load(":libtorch.bzl", "libtorch_repository")
load(":system.bzl", "system_repository")

def _torchps_libraries_impl(_):
    system_repository(name = "system")
    libtorch_repository(name = "libtorch")

torchps_libraries = module_extension(implementation = _torchps_libraries_impl)
