#pragma once

#include <string>

namespace torchps {

// True if `address` ("HOST:PORT") belongs to this machine: a loopback address, or an address of a
// local interface. Empty addresses mean a server in this process, so they are local. Resolves host
// names, which may block as long as the system's resolver; unknown names are not local.
//
// The result is a hint: a container's port that is published on this machine looks local, too.
bool IsLocalAddress(const std::string& address);

}  // namespace torchps
