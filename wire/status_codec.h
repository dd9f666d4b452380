#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "grpcpp/support/status.h"

namespace torchps {

// A status travels with a call's trailers, for which HTTP/2 peers set aside 8 KiB by default; a
// longer one would turn every error into another. Non-ASCII bytes take three there.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// UNAVAILABLE from a server that is there and cannot serve yet: `what` is what it is at, to be said
// after its name, as "reads checkpoint 7".
absl::Status BusyError(absl::string_view message, absl::string_view what);
// What a server that answered so is at; nothing where the status is any other. What gRPC says of a
// server that it does not reach never is one.
absl::optional<std::string> BusyWith(const absl::Status& status);

// The one pair of functions between the two kinds of status; codes, message and busyness stay the
// same.
// A message above kMaxStatusMessageBytes is cut at a character and ends in "...". Thread-safe.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that Abseil does not know (another program's) becomes UNKNOWN. Thread-safe.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace torchps
