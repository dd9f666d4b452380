#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// Where a server listens.
struct ListenAddress {
  std::string host;
  int port = 0;
  // Only this machine reaches it.
  bool is_loopback = false;
};

// By which name others reach a server that listens on `host`: this machine's, where that is every
// interface of it.
std::string ReachableHost(const std::string& host);

// Where to listen, to be reached at `address` whatever `address.host` means on this machine itself:
// on every interface, of its version of IP.
std::string EveryInterface(const ListenAddress& address);

// Of HOST:PORT, as in "127.0.0.1:7000" or "[::1]:0". INVALID_ARGUMENT: `text` is something else.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

}  // namespace torchps
