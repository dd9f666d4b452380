"""Defines a fuzz target as a test for any compiler and as a libFuzzer program."""

def fuzz_target(name, deps):
    """Defines NAME_fuzz_test (the corpus and random changes of it) and NAME_fuzzer (libFuzzer).

    Args:
      name: the name of the target. NAME_fuzz.cc defines LLVMFuzzerTestOneInput; the corpus is in corpus/NAME.
      deps: the dependencies of NAME_fuzz.cc.
    """
    srcs = [name + "_fuzz.cc"]
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
        # Builds only with --config=fuzz.
        tags = ["manual"],
        deps = deps + [":fuzz_target"],
    )
