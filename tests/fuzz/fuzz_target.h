#pragma once

#include <cstddef>
#include <cstdint>

#include "common/check.h"

// A fuzz target is one function of bytes that nobody vouches for. It must return, whatever they
// are; a wrong result is as bad as a crash and is told by FUZZ_CHECK. libFuzzer calls it
// (deploy/fuzz.sh), and so does fuzz_driver.cc, which makes a test of it with any compiler.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#define FUZZ_CHECK(condition) TPS_CHECK(condition, "a fuzz target found a wrong result")
