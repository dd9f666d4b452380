#pragma once

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "torch/types.h"

namespace torchps {

// INVALID_ARGUMENT where `device` does not train in `precision`, one sentence with both.
absl::Status CheckPrecision(TrainingSpec::Precision precision, torch::Device device);

// Whether GPUs may round what they multiply to TF32, 10 bits of mantissa: with TF32 alone, in
// convolutions and in matrix products. (By itself torch does so in the former and not in the
// latter.) A setting of the whole process: for its program to make once, before it makes a module.
void SetTf32(TrainingSpec::Precision precision);

}  // namespace torchps
