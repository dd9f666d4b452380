#pragma once

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"

namespace torchps {

// What is done to a block beside an optimizer's step, in the same loop (elementwise.h): vectorised,
// the same bits on every instruction set, denormal numbers count as zero. The first argument points
// to as many floats as the span has, at any byte address, and does not overlap it.

// sums += factor * terms.
void AddScaled(const float* terms, float factor, absl::Span<float> sums,
               InstructionSet set = BestInstructionSet());

// values *= factor.
void Scale(float factor, absl::Span<float> values, InstructionSet set = BestInstructionSet());

// values += share * (targets - values).
void MoveTowards(const float* targets, float share, absl::Span<float> values,
                 InstructionSet set = BestInstructionSet());

}  // namespace torchps
