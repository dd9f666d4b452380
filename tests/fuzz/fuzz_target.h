#pragma once

#include <cstddef>
#include <cstdint>

#include "common/check.h"

// Runs the fuzz target on arbitrary bytes. The target must return for any input. A wrong result is
// as bad as a crash, and FUZZ_CHECK reports it. Called by libFuzzer (deploy/fuzz.sh) and by
// fuzz_driver.cc, which turns the target into a test with any compiler.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#define FUZZ_CHECK(condition) TPS_CHECK(condition, "a fuzz target found a wrong result")
