#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"

namespace torchps {

// Returns the index of the first infinite or NaN element, or -1 if all elements are finite. Tests
// the exponent bits of many elements at a time, faster than memory delivers them.
int64_t FirstNonFinite(absl::Span<const float> elements, InstructionSet set = BestInstructionSet());

// Same for `count` float32 numbers at any byte address.
int64_t FirstNonFinite(const uint8_t* numbers, int64_t count,
                       InstructionSet set = BestInstructionSet());

// Same for bfloat16.
int64_t FirstNonFiniteBfloat16(const uint8_t* numbers, int64_t count,
                               InstructionSet set = BestInstructionSet());

}  // namespace torchps
