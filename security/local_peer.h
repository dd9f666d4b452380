#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace torchps {

// The user whose process is at the other end of a TCP connection within this machine, as the kernel
// knows it: on a loopback everybody can connect to everybody, so an address proves nothing.
// UNAUTHENTICATED: the other end has gone or is not on this machine, or the kernel does not tell.
absl::StatusOr<uid_t> OwnerOfPeer(int socket);

}  // namespace torchps
