#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/proto/replica.pb.h"

// Encodes tensors for transfer between the processes of a replica. Free functions without state.

namespace torchps {

// Returns the header of a tensor, without the elements. The type is NONE if the tensor is
// undefined. INVALID_ARGUMENT: the element type cannot be transferred.
absl::StatusOr<TensorHeader> DescribeTensor(const torch::Tensor& tensor);

// Moves the tensor out of a received parcel, without copying. Returns an undefined tensor if the
// header's type is NONE. INVALID_ARGUMENT: as CheckTensor().
absl::StatusOr<torch::Tensor> TakeTensor(TensorMessage* parcel);

}  // namespace torchps
