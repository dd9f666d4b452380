#include "torchps/server/rpc/listening_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace torchps {

std::string ConnectionName(const grpc::ServerContext& context) {
  std::string peer = context.peer();
  if (absl::StartsWith(peer, "inproc")) peer.clear();
  return peer;
}

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

namespace {

constexpr int kBacklog = 1024;

}  // namespace

absl::StatusOr<ListeningSockets> OpenListeningSockets(const std::string& host, int port) {
  std::string name = host;
  if (name.size() >= 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  const auto failed = [&](const std::string& why) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", port, ": ", why));
  };
  if (error != 0) return failed(error == EAI_NONAME ? "unknown host" : gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
  ListeningSockets listening;
  listening.port = port;
  std::string refused = "no address";
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    FileDescriptor listener(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    sockaddr_storage address{};
    std::memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (address.ss_family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_port = htons(listening.port);
    } else {
      reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(listening.port);
    }
    const int yes = 1;
    // Lets a restarted server reuse the port. Two servers still cannot share one.
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    socklen_t size = at->ai_addrlen;
    if (listener.get() < 0 ||
        bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener.get(), kBacklog) != 0) {
      if (errno == EADDRINUSE) {
        return absl::AlreadyExistsError(
            absl::StrCat("cannot listen on ", host, ":", listening.port,
                         ": the port is taken by another process; end that "
                         "process, or listen on another port (0: any free port)"));
      }
      // The name may resolve to an address family that this machine lacks.
      refused = absl::AsciiStrToLower(std::strerror(errno));
      continue;
    }
    size = sizeof(address);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    listening.port =
        ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                           : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
    listening.sockets.push_back(std::move(listener));
  }
  if (listening.sockets.empty()) return failed(refused);
  return listening;
}

}  // namespace torchps
