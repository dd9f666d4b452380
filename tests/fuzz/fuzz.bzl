"""A fuzz target as a test with any compiler, and as a libFuzzer program."""

def fuzz_target(name, srcs, deps):
    """NAME_fuzz_test runs the corpus and random changes of it; NAME_fuzzer is libFuzzer's.

    Args:
      name: of the target; its corpus is corpus/NAME.
      srcs: what defines LLVMFuzzerTestOneInput.
      deps: of them.
    """
    native.cc_test(
        name = name + "_fuzz_test",
        size = "small",
        srcs = srcs,
        args = ["tests/fuzz/corpus/" + name],
        data = native.glob(["corpus/" + name + "/*"]),
        deps = deps + [
            ":fuzz_driver",
            ":fuzz_target",
        ],
    )
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = 1,
        srcs = srcs,
        linkopts = ["-fsanitize=fuzzer"],
        # Builds with --config=fuzz only.
        tags = ["manual"],
        deps = deps + [":fuzz_target"],
    )
