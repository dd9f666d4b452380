#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "server/optimizer/optimizer.h"

// The loops of some optimizers once more, written with Google Highway, to be compared with
// (apply_kernels_benchmark). As theirs they ask for memory ahead and take denormal numbers for
// zero, and no multiplication is fused with an addition.

namespace torchps {

// As Apply of the optimizer that `spec` asks for, and with its bits. REQUIRES: `spec` is sgd
// without Nesterov's momentum, or adamw, and is normalised; slots.size() is that of the optimizer.
void ApplyWithHighway(const OptimizerSpec& spec, const ApplyParameters& parameters, float* values,
                      absl::Span<float* const> slots, const float* gradient, int64_t n);

// Highway's name of the instruction set that it chose: "AVX2", "AVX3" (AVX-512).
const char* HighwayTarget();

}  // namespace torchps
