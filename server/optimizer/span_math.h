#pragma once

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"

namespace torchps {

// Element-wise operations on blocks, with the properties of ForEachElement (elementwise.h):
// vectorized, same bits on each instruction set, denormals count as zero. The first argument points
// to span.size() floats at any byte address, and does not overlap the span.

// sums += factor * terms.
void AddScaled(const float* terms, float factor, absl::Span<float> sums,
               InstructionSet set = BestInstructionSet());

// values *= factor.
void Scale(float factor, absl::Span<float> values, InstructionSet set = BestInstructionSet());

// values += share * (targets - values).
void MoveTowards(const float* targets, float share, absl::Span<float> values,
                 InstructionSet set = BestInstructionSet());

}  // namespace torchps
