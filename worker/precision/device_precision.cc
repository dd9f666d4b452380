#include "worker/precision/device_precision.h"

#include <ATen/Context.h>

#include "absl/strings/str_cat.h"

namespace torchps {

absl::Status CheckPrecision(TrainingSpec::Precision precision, torch::Device device) {
  // torch 1.13 supports only bfloat16 on the CPU.
  if (precision != TrainingSpec::FLOAT16 || !device.is_cpu()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "job field training.precision is FLOAT16, but device '", device.str(),
      "' cannot train in it; expected FLOAT32 or BFLOAT16 for the CPU, or a GPU (--device=cuda)"));
}

void SetTf32(TrainingSpec::Precision precision) {
  const bool allowed = precision == TrainingSpec::TF32;
  at::globalContext().setAllowTF32CuDNN(allowed);
  at::globalContext().setAllowTF32CuBLAS(allowed);
}

}  // namespace torchps
