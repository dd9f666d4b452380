#pragma once

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "torch/types.h"

namespace torchps {

// INVALID_ARGUMENT, one sentence, if `device` cannot train in `precision`.
absl::Status CheckPrecision(TrainingSpec::Precision precision, torch::Device device);

// Allows GPUs to use TF32 (10 bits of mantissa) in convolutions and matrix products if `precision`
// is TF32; otherwise forbids it. torch's default allows it only in convolutions. Affects the whole
// process. Call it once, before the program creates a module.
void SetTf32(TrainingSpec::Precision precision);

}  // namespace torchps
