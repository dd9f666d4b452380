#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// Identify the worker process. Thread-safe.

// Returns the host name; "unknown" if the system does not know the name.
std::string HostName();

// Returns a random nonzero number. It distinguishes this process from a later process with the same
// arguments.
uint64_t DrawNonce();

}  // namespace torchps
