#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace torchps {

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

}  // namespace torchps
