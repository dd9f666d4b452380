#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"

namespace torchps {

// Returns the samples at `indices`. The dataset may be the user's. INVALID_ARGUMENT if a tensor
// does not have one row for each index; the message names the tensor. Other errors are the
// dataset's.
absl::StatusOr<Batch> FetchBatch(const Dataset& dataset, absl::Span<const int64_t> indices);

// Returns rows [begin, begin + size) of a batch. Shares the batch's memory.
Batch GetRows(const Batch& batch, int64_t begin, int64_t size);

}  // namespace torchps
