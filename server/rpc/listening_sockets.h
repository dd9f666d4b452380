#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"

namespace torchps {

// Sockets that listen, nonblocking, all on one port.
struct ListeningSockets {
  std::vector<FileDescriptor> sockets;
  int port = 0;
};

// One for each address that `host` leads to, a name or an address with or without brackets; port 0
// takes a free one. ALREADY_EXISTS: the port is taken. UNAVAILABLE: the host is not this machine's,
// with the system's words.
absl::StatusOr<ListeningSockets> OpenListeningSockets(const std::string& host, int port);

}  // namespace torchps
