#pragma once

#include <map>
#include <string>
#include <vector>

#include "torchps/common/process/file_descriptor.h"

namespace torchps {

// Opens idle connections to a server that send no data, half of a TLS hello, or the beginning of a
// push. They simulate port scanners, hung workers and crashed machines. The connections use another
// loopback address, 127.0.0.2, like a remote host.
//
// Not thread-safe; does not start threads.
class UnauthenticatedClients {
 public:
  // Opens `of_each` connections of each kind, as far as the file limit and the server allow.
  // Returns the number opened.
  int Come(int server, const std::string& address, int of_each);
  // Closes the connections to the server.
  void Go(int server) { there_.erase(server); }

 private:
  std::map<int, std::vector<FileDescriptor>> there_;
};

// Returns the data that each kind sends; "" for none.
std::vector<std::string> WordsOfStrangers();

}  // namespace torchps
