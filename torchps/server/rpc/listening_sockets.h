#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {

// Returns the address and port of the call's peer, which are unique among open connections. Returns
// an empty string for a call from this process, because in-process callers may share a name.
// REQUIRES: the call has arrived.
std::string ConnectionName(const grpc::ServerContext& context);

// Address on which a server listens.
struct ListenAddress {
  std::string host;
  int port = 0;
  // True if only this machine can reach the address.
  bool is_loopback = false;
};

// Returns the name under which other machines reach a server that listens on `host`. For a wildcard
// address this is the machine's host name.
std::string ReachableHost(const std::string& host);

// Returns the wildcard address of the same IP version with the same port. A server that listens
// there is reachable at `address` even if `address.host` resolves differently on this machine.
std::string EveryInterface(const ListenAddress& address);

// Parses HOST:PORT, as in "127.0.0.1:7000" or "[::1]:0". Returns INVALID_ARGUMENT for other text.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

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
