#pragma once

#include <cstddef>
#include <cstdint>

#include "torchps/common/check.h"

// The fuzz target. Each *_fuzz.cc defines it and runs it on arbitrary bytes. The target must return
// for any input. A wrong result is as bad as a crash, and FUZZ_CHECK reports it. libFuzzer
// (deploy/fuzz.sh) calls the target, and so does fuzz_driver.cc, which needs no libFuzzer and runs
// as a test.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#define FUZZ_CHECK(condition) TPS_CHECK(condition, "a fuzz target found a wrong result")
