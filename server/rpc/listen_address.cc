#include "server/rpc/listen_address.h"

#include <arpa/inet.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

bool IsLoopback(const std::string& host) {
  // Parses numeric addresses, because a *name* may begin with "127." and resolve to any address.
  in_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) {
    return (ntohl(address.s_addr) >> 24) == 127;
  }
  return host == "localhost" || host == "[::1]";
}

}  // namespace

std::string ReachableHost(const std::string& host) {
  if (host != "0.0.0.0" && host != "[::]") return host;
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != 0 ? name : host;
}

std::string EveryInterface(const ListenAddress& address) {
  return absl::StrCat(address.host[0] == '[' ? "[::]:" : "0.0.0.0:", address.port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on '", text,
                                                   "'; expected HOST:PORT with a port from 0 to ",
                                                   "65535, as in 127.0.0.1:7000"));
  }
  address.host = text.substr(0, colon);
  address.is_loopback = IsLoopback(address.host);
  return address;
}

}  // namespace torchps
