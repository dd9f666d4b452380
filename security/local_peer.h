#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace torchps {

// The user whose process is at the other end of a TCP connection within this machine, as the kernel
// knows it: on a loopback everybody can connect to everybody, so an address proves nothing.
// UNAUTHENTICATED: the other end has gone or is not on this machine, or the kernel does not tell.
absl::StatusOr<uid_t> OwnerOfPeer(int socket);

// The number under which the kernel tells of every user that has none in this process's user
// namespace (a container's): 65534, unless the machine says another one. nullopt: here every user
// has a number, as on a machine itself.
absl::optional<uid_t> OverflowUser();
// The same of what /proc/self/uid_map and /proc/sys/kernel/overflowuid contain.
absl::optional<uid_t> GetOverflowUser(const std::string& uid_map, const std::string& overflow);

// Whether a server that runs as `own`, and serves that user and root, serves `owner`.
// PERMISSION_DENIED: another user. UNAUTHENTICATED: both are the overflow user, so that the other
// end may be anybody's. Each in words that follow on a client's address and "it".
absl::Status CheckOwner(uid_t owner, uid_t own, absl::optional<uid_t> overflow);

}  // namespace torchps
