#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"

namespace torchps {

// Nonblocking listening sockets, all on the same port.
struct ListeningSockets {
  std::vector<FileDescriptor> sockets;
  int port = 0;
};

// Opens one socket for each address that `host` resolves to. `host` is a name, or an address with
// or without brackets. Port 0 picks a free port. Returns ALREADY_EXISTS if the port is in use, and
// UNAVAILABLE with the system's message if the host is not an address of this machine.
absl::StatusOr<ListeningSockets> OpenListeningSockets(const std::string& host, int port);

}  // namespace torchps
