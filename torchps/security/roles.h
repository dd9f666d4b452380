#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/common/types.h"

namespace torchps {

// The role that a certificate grants.
enum class Role { kServer, kWorker, kOperator };

// Returns "server", "worker" or "operator", as used in identities, messages and directory names.
absl::string_view RoleName(Role role);

// The identity of a process, stored as a URI in the certificate's subject alternative name:
// torchps://JOB/ROLE/NAME. DNS names in that field stand for hosts, so the identity is not a DNS
// name.
struct Identity {
  // The job or cluster for which the certificates were created. Certificates of another job are
  // rejected even if the same authority signed them.
  std::string job;
  Role role = Role::kWorker;
  // Arbitrary, except that a worker named "slot-3" may only act for slot 3.
  std::string name;
};

bool operator==(const Identity& a, const Identity& b);

// Returns INVALID_ARGUMENT, naming the invalid part. Job and name consist of 1 to 64 of the
// characters A-Z a-z 0-9 . _ -
absl::Status CheckIdentity(const Identity& identity);

std::string ToUri(const Identity& identity);

// Returns INVALID_ARGUMENT if `uri` has another form or CheckIdentity fails.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

// Returns the only slot for which a worker with this identity may act, or nullopt if it may act for
// any slot.
std::optional<SlotId> BoundSlot(const Identity& identity);

// The roles that may call a method.
struct MethodRule {
  absl::string_view method;   // "Push"
  absl::string_view request;  // request message, which identifies the method
  bool server = false;
  bool worker = false;
  bool operators = false;
};

// Pseudo message name for a Leave that ends an incarnation for good. Such a message carries no
// server incarnation and may only come from a coordinator.
inline constexpr absl::string_view kFarewell = "LeaveRequest for good";

// Returns the rule for the method with this request message, or null if it does not exist; then no
// role may call it. docs/security.md contains the whole table.
const MethodRule* FindMethodRule(absl::string_view request);

// Returns OK if the holder of a certificate may make this call for `slot` (nullopt: for no slot),
// otherwise PERMISSION_DENIED.
absl::Status CheckMethod(const MethodRule& rule, const Identity& caller,
                         std::optional<SlotId> slot);

}  // namespace torchps
