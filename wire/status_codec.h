#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "grpcpp/support/status.h"

namespace torchps {

// A status is sent in the call's trailers, for which HTTP/2 peers reserve 8 KiB by default. A
// longer trailer would replace the error by a different one. Non-ASCII bytes take three bytes
// there.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// Returns UNAVAILABLE for a server that is reachable but cannot serve yet. `what` describes the
// server's current activity as a verb phrase, such as "reads checkpoint 7".
absl::Status BusyError(absl::string_view message, absl::string_view what);
// Returns the activity from a BusyError, or nullopt for any other status. Statuses that gRPC
// creates for unreachable servers are never busy errors.
absl::optional<std::string> BusyWith(const absl::Status& status);

// Converts a status to gRPC, keeping the code, the message and the busy activity. Truncates
// messages above kMaxStatusMessageBytes at a character boundary and appends "...". Thread-safe.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Converts a gRPC status to Abseil. Codes unknown to Abseil become UNKNOWN. Thread-safe.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace torchps
