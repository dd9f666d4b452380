#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"

namespace torchps {

// The samples at `indices` of a dataset that may be a user's own. INVALID_ARGUMENT: what it gave is
// no batch of so many rows, and the message says which tensor. Other errors are the dataset's.
absl::StatusOr<Batch> FetchBatch(const Dataset& dataset, absl::Span<const int64_t> indices);

// Rows [begin, begin + size) of a batch. Shares its memory.
Batch GetRows(const Batch& batch, int64_t begin, int64_t size);

}  // namespace torchps
