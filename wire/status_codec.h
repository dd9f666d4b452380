#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace torchps {

// A status travels with a call's trailers, for which HTTP/2 peers set aside 8 KiB by default; a
// longer one would turn every error into another. Non-ASCII bytes take three there.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// The one pair of functions between the two kinds of status; codes and message stay the same.
// A message above kMaxStatusMessageBytes is cut at a character and ends in "...". Thread-safe.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that Abseil does not know (another program's) becomes UNKNOWN. Thread-safe.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace torchps
