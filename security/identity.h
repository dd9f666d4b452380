#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/ids.h"

namespace torchps {

// What a certificate lets its holder be.
enum class Role { kServer, kWorker, kOperator };

// "server", "worker", "operator": in identities, in messages and as names of directories.
absl::string_view RoleName(Role role);

// A process's identity, as the URI in its certificate's subject alternative name gives it:
// torchps://JOB/ROLE/NAME. A URI, because DNS names there say where a server may be found, and the
// common name is not checked.
struct Identity {
  // The job or cluster that the certificates were made for. Those of another one are refused, also
  // where the same authority signed them.
  std::string job;
  Role role = Role::kWorker;
  // Free, but for a worker's "slot-3": that certificate speaks for slot 3 only.
  std::string name;
};

bool operator==(const Identity& a, const Identity& b);

// INVALID_ARGUMENT names the part: job and name have 1 to 64 characters out of A-Z a-z 0-9 . _ -
absl::Status CheckIdentity(const Identity& identity);

std::string ToUri(const Identity& identity);

// INVALID_ARGUMENT: not such a URI, or CheckIdentity's.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

// The only slot that a worker of this identity may speak for; nullopt: any.
absl::optional<SlotId> BoundSlot(const Identity& identity);

}  // namespace torchps
