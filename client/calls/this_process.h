#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// What a worker's process tells of itself. Thread-safe.

// This machine's, as it calls itself; "unknown" where it does not.
std::string HostName();

// At random, not 0: tells this process from one that is started again with the same arguments.
uint64_t DrawNonce();

}  // namespace torchps
