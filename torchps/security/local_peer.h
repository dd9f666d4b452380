#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// Returns the user of the process at the other end of a TCP connection within this machine, as
// reported by the kernel. All local users can connect over loopback, so the address alone proves
// nothing. Returns UNAUTHENTICATED if the other end is closed or on another machine, or if the
// kernel does not answer.
absl::StatusOr<uid_t> OwnerOfPeer(int socket);

// Returns the overflow user id, under which the kernel reports all users that are not mapped into
// this process's user namespace (a container): usually 65534. Returns nullopt if all users are
// mapped, as outside a container.
std::optional<uid_t> OverflowUser();
// Like OverflowUser(), for these contents of /proc/self/uid_map and /proc/sys/kernel/overflowuid.
std::optional<uid_t> GetOverflowUser(const std::string& uid_map, const std::string& overflow);

// Decides whether a server that runs as `own` serves a client of user `owner`; it serves only `own`
// and root. Returns PERMISSION_DENIED for another user. Returns UNAUTHENTICATED if both are the
// overflow user, because the client may then be any unmapped user. Messages continue a sentence
// that starts with the client's address and "it".
absl::Status CheckOwner(uid_t owner, uid_t own, std::optional<uid_t> overflow);

}  // namespace torchps
