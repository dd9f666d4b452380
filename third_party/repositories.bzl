"""What torchps needs around it, for its own WORKSPACE and for those of others."""

load(":bazel_rules.bzl", "bazel_rules_from_debian")
load(":libtorch.bzl", "libtorch_repository")
load(":system.bzl", "system_repository")

def torchps_repositories():
    """Bazel's own rules, @system and @libtorch: all of it is on the machine, nothing is fetched."""
    bazel_rules_from_debian()
    system_repository(name = "system")
    libtorch_repository(name = "libtorch")
