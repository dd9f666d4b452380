#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// The following are pure functions on verdict counts.

// Increments the count for `verdict`. Returns false, leaving the counts unchanged, if a gradient
// cannot receive this verdict.
bool Count(Verdict verdict, VerdictCounts* counts);
// Adds the counts of `part` to `sum`.
void Add(const VerdictCounts& part, VerdictCounts* sum);

// Return the number of verdicts that changed their block, that did not, and the total.
inline uint64_t Applied(const VerdictCounts& counts) { return counts.accepted() + counts.scaled(); }
inline uint64_t NotApplied(const VerdictCounts& counts) {
  return counts.rejected() + counts.late() + counts.withheld();
}
inline uint64_t Verdicts(const VerdictCounts& counts) {
  return Applied(counts) + NotApplied(counts);
}

// Returns a progress text for users: "reads checkpoint 7, 40 % done". Omits the percentage if it is
// unknown.
inline std::string RestoringText(const Restoring& restoring) {
  if (restoring.part() <= 0) return restoring.what();
  return absl::StrFormat("%s, %.0f %% done", restoring.what(), 100 * restoring.part());
}

// Maximum length of a status message. gRPC sends it in the call's trailers, for which HTTP/2 peers
// reserve 8 KiB by default. If the trailers are longer, the peer sees a different error. A
// non-ASCII byte takes three bytes in the trailers.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// Returns UNAVAILABLE for a server that is reachable but cannot serve yet. `what` describes the
// server's current activity as a verb phrase, such as "reads checkpoint 7".
absl::Status BusyError(absl::string_view message, absl::string_view what);
// Returns the activity from a BusyError, or nullopt for any other status. Statuses that gRPC
// creates for unreachable servers are never busy errors.
std::optional<std::string> BusyWith(const absl::Status& status);

// Converts a status to gRPC, keeping the code, the message and the busy activity. Truncates
// messages above kMaxStatusMessageBytes at a character boundary and appends "...". Thread-safe.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Converts a gRPC status to Abseil. Codes unknown to Abseil become UNKNOWN. Thread-safe.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace torchps
