#pragma once

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"

namespace torchps {

// What one pass over a flat vector tells.
struct GradientScan {
  bool finite = true;
  // Euclidean norm; not a number or infinite where `finite` is false.
  double norm = 0;
};

// One pass over `elements`, added up in the order of worker/gradient/sum_order.h: the same bits on
// every instruction set and on a GPU. The square of every finite float32 fits in a double, and so
// does the sum of 2^40 of them: the sum is finite exactly when each element is, and no second test
// is needed.
GradientScan ScanGradient(absl::Span<const float> elements,
                          InstructionSet set = BestInstructionSet());

// Scales `elements` to the norm `clip_norm` if `norm`, theirs, is above it, by the factor
// clip_norm / (norm + 1e-6) of torch.nn.utils.clip_grad_norm_. `clip_norm` 0 clips nothing. Returns
// whether it scaled.
bool ClipGradient(absl::Span<float> elements, double norm, double clip_norm);

}  // namespace torchps
