#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "proto/replica.pb.h"
#include "torch/types.h"

// Tensors as they travel between the processes of a replica. Free functions without state.

namespace torchps {

// What is said of a tensor beside its elements. NONE for one that is not defined.
// INVALID_ARGUMENT: its elements are of a type that does not travel.
absl::StatusOr<TensorHeader> DescribeTensor(const torch::Tensor& tensor);

// The tensor of a parcel that a peer has sent: takes the payload out of it and copies nothing.
// Undefined where the header says so. INVALID_ARGUMENT: an unknown type, a negative dimension, or
// another number of bytes than type and shape give.
absl::StatusOr<torch::Tensor> TakeTensor(TensorMessage* parcel);

}  // namespace torchps
