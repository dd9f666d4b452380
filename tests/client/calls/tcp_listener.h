#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace torchps {

// Listens on a free loopback port as a foreign server. It sends `greeting` on each connection and
// closes it. Without a greeting it stays silent and keeps the connection open.
class TcpListener {
 public:
  explicit TcpListener(const std::optional<std::string>& greeting)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    socklen_t length = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    listen(fd_, 16);
    if (!greeting.has_value()) return;
    thread_ = std::thread([this, greeting = *greeting] {
      int connection = -1;
      while ((connection = accept(fd_, nullptr, nullptr)) >= 0) {
        send(connection, greeting.data(), greeting.size(), MSG_NOSIGNAL);
        ::shutdown(connection, SHUT_WR);
        char rest[1024];
        while (recv(connection, rest, sizeof(rest), 0) > 0) {
        }
        close(connection);
      }
    });
  }

  ~TcpListener() { Close(); }

  // Refuses connections from now on.
  void Close() {
    if (fd_ < 0) return;
    ::shutdown(fd_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(fd_);
    fd_ = -1;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int fd_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace torchps
