#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// True if `address` ("HOST:PORT") belongs to this machine: a loopback address, or an address of a
// local interface. Empty addresses mean a server in this process, so they are local. Resolves host
// names, which may block as long as the system's resolver; unknown names are not local.
//
// The result is a hint: a container's port that is published on this machine looks local, too.
bool IsLocalAddress(const std::string& address);

// Identify the worker process. Thread-safe.

// Returns the host name; "unknown" if the system does not know the name.
std::string HostName();

// Returns a random nonzero number. It distinguishes this process from a later process with the same
// arguments.
uint64_t DrawNonce();

}  // namespace torchps
