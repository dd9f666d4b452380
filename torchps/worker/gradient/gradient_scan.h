#pragma once

#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"

namespace torchps {

// The result of a pass over a flat vector.
struct GradientScan {
  bool finite = true;
  // Euclidean norm. NaN or infinite if `finite` is false.
  double norm = 0;
};

// Scans `elements` once, adding squares in the order of torchps/worker/gradient/sum_order.h. The
// result is bit-identical on all instruction sets and on a GPU. The square of any finite float32
// fits in a double, and so does the sum of 2^40 such squares. Therefore the sum is finite exactly
// if each element is finite.
GradientScan ScanGradient(absl::Span<const float> elements,
                          InstructionSet set = BestInstructionSet());

// Scales `elements` to the norm `clip_norm` if `norm`, the norm of `elements`, is above
// `clip_norm`. The factor is clip_norm / (norm + 1e-6), as in torch.nn.utils.clip_grad_norm_.
// Returns true if it scaled. `clip_norm` 0 disables clipping.
bool ClipGradient(absl::Span<float> elements, double norm, double clip_norm);

}  // namespace torchps
