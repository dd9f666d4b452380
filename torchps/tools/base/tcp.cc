#include "torchps/tools/base/tcp.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace torchps {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

absl::StatusOr<FileDescriptor> Connect(const std::string& address, const std::string& from,
                                       int flags) {
  uint32_t port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
    return absl::UnavailableError(absl::StrCat("no port in ", address));
  }
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  sockaddr_in here = Loopback(0);
  if (!from.empty() &&
      (inet_pton(AF_INET, from.c_str(), &here.sin_addr) != 1 ||
       bind(connection.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)) != 0)) {
    return absl::UnavailableError(absl::StrCat("cannot connect from ", from));
  }
  const sockaddr_in to = Loopback(static_cast<uint16_t>(port));
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 &&
      errno != EINPROGRESS) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", address, ": ", std::strerror(errno)));
  }
  return connection;
}

}  // namespace

absl::StatusOr<FileDescriptor> ListenOnLoopback(std::string* address) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in bound = Loopback(0);
  socklen_t length = sizeof(bound);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&bound), length) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen: ", std::strerror(errno)));
  }
  *address = absl::StrCat("127.0.0.1:", ntohs(bound.sin_port));
  return listener;
}

absl::StatusOr<FileDescriptor> HoldLoopbackPort(int* port) {
  FileDescriptor holder(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in bound = Loopback(0);
  socklen_t length = sizeof(bound);
  // Linux lets two sockets bind the same port if both set SO_REUSEADDR and neither listens.
  const int yes = 1;
  if (setsockopt(holder.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(holder.get(), reinterpret_cast<sockaddr*>(&bound), length) != 0 ||
      getsockname(holder.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("no free port on this machine: ", std::strerror(errno)));
  }
  *port = ntohs(bound.sin_port);
  return holder;
}

absl::StatusOr<FileDescriptor> ConnectTcp(const std::string& address, const std::string& from) {
  return Connect(address, from, 0);
}

absl::StatusOr<FileDescriptor> BeginTcp(const std::string& address, const std::string& from) {
  return Connect(address, from, SOCK_NONBLOCK);
}

absl::Status WriteAll(const FileDescriptor& socket, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return absl::UnavailableError(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

void CloseWithReset(FileDescriptor socket) {
  const linger none{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

TcpEnd ReadUntilEnd(const FileDescriptor& socket, absl::Duration timeout, size_t bytes_wanted) {
  const absl::Time deadline = absl::Now() + timeout;
  TcpEnd end;
  while (end.bytes.size() < bytes_wanted) {
    pollfd ready{socket.get(), POLLIN, 0};
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now()));
    if (poll(&ready, 1, static_cast<int>(left)) == 0) return end;
    char bytes[4096];
    const ssize_t got = recv(socket.get(), bytes, sizeof(bytes), 0);
    if (got <= 0) {
      end.kind = got == 0 ? TcpEnd::kClosed : TcpEnd::kReset;
      return end;
    }
    end.bytes.append(bytes, static_cast<size_t>(got));
  }
  return end;
}

}  // namespace torchps
