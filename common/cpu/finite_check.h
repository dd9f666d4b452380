#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"

namespace torchps {

// Index of the first element that is infinite or not a number, -1 if all are finite. Tests the
// exponent bits of many elements at a time: faster than memory brings them.
int64_t FirstNonFinite(absl::Span<const float> elements, InstructionSet set = BestInstructionSet());

// The same for `count` float32 at any byte address.
int64_t FirstNonFinite(const uint8_t* numbers, int64_t count,
                       InstructionSet set = BestInstructionSet());

// The same for bfloat16.
int64_t FirstNonFiniteBfloat16(const uint8_t* numbers, int64_t count,
                               InstructionSet set = BestInstructionSet());

}  // namespace torchps
