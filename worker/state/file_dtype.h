#pragma once

#include <torch/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "checkpoint/safetensors.h"

namespace torchps {

// Returns the dtype under which a file holds `tensor`. INVALID_ARGUMENT names a tensor that no file
// holds: sparse, quantized, or complex with 16-bit parts.
absl::StatusOr<Dtype> GetFileDtype(const std::string& name, const torch::Tensor& tensor);

// Returns torch's type of `dtype`; null for Dtype::kOther.
absl::optional<torch::ScalarType> GetScalarType(Dtype dtype);

}  // namespace torchps
