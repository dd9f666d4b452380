#pragma once

#include <string>

namespace torchps {

// Whether `address`, "HOST:PORT", leads to this very machine: a loopback address, or one that an
// interface here has. An empty address is a server inside this process. A name is looked up, which
// may take as long as the system's resolver does; one that is not known leads elsewhere.
//
// A hint, not a proof: a container's port that is published on this machine looks the same.
bool IsLocalAddress(const std::string& address);

}  // namespace torchps
