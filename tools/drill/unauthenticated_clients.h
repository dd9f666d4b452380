#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/process/file_descriptor.h"

namespace torchps {

// Connections to a server that say nothing, half of a TLS hello, or the beginning of a push, and
// then stay: a port scanner, a worker whose machine has died, one that hangs. They come from
// another address of the loopback, 127.0.0.2, as from another host.
//
// Not thread-safe; no thread.
class UnauthenticatedClients {
 public:
  // So many of each kind come, as far as there are files and the server takes them. How many did.
  int Come(int server, const std::string& address, int of_each);
  // Those at that server go.
  void Go(int server) { there_.erase(server); }

 private:
  std::map<int, std::vector<FileDescriptor>> there_;
};

// What they say, of each kind: "" is nothing.
std::vector<std::string> WordsOfStrangers();

}  // namespace torchps
