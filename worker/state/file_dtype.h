#pragma once

#include <torch/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "checkpoint/safetensors.h"

namespace torchps {

// Returns the dtype under which a file stores `tensor`. INVALID_ARGUMENT names a tensor that cannot
// be stored: sparse, quantized, or complex with 16-bit parts.
absl::StatusOr<Dtype> GetFileDtype(const std::string& name, const torch::Tensor& tensor);

// Returns the torch type for `dtype`, or nullopt for Dtype::kOther.
absl::optional<torch::ScalarType> GetScalarType(Dtype dtype);

}  // namespace torchps
