// raw_tcp: the speed of two processes with plain sockets, as a baseline for other cases.
//
// The sender writes the message from one large buffer in pieces of 1 MiB without waiting. The
// receiver reads into a reused buffer of 1 MiB. Both use the system's default congestion control,
// as torchps does.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/data_plane/numbers.h"
#include "bench/data_plane/operation.h"
#include "bench/data_plane/tcp.h"

namespace torchps {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Owns a socket.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }

  void Tune() {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }

  absl::Status Write(const char* data, size_t bytes) {
    while (bytes > 0) {
      const ssize_t written = send(fd_, data, std::min(bytes, kPieceBytes), MSG_NOSIGNAL);
      if (written <= 0) return SystemError("a raw TCP connection cannot be written");
      data += written;
      bytes -= written;
    }
    return absl::OkStatus();
  }

  // Returns false at the end of the connection.
  bool Read(char* data, size_t bytes) { return recv(fd_, data, bytes, 0) > 0; }

 private:
  int fd_;
};

class SendMessage final : public Operation {
 public:
  SendMessage(Socket socket, const std::vector<float>* message)
      : socket_(std::move(socket)), message_(message) {}

  absl::Status Run() override {
    return socket_.Write(reinterpret_cast<const char*>(message_->data()),
                         message_->size() * sizeof(float));
  }

 private:
  Socket socket_;
  const std::vector<float>* const message_;
};

class TcpStage final : public Stage {
 public:
  TcpStage(const Scenario& scenario, sockaddr_in peer)
      : peer_(peer), message_(SomeFloats(scenario.bytes / sizeof(float))) {}

  absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view) override {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) return SystemError("cannot create a socket");
    socket.Tune();
    if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_)) != 0) {
      return SystemError("cannot connect to the raw TCP peer");
    }
    return std::make_unique<SendMessage>(std::move(socket), &message_);
  }

 private:
  const sockaddr_in peer_;
  const std::vector<float> message_;
};

// Reads from one connection until it closes.
void Receive(Socket socket) {
  std::vector<char> buffer(kPieceBytes);
  while (socket.Read(buffer.data(), buffer.size())) {
  }
}

absl::StatusOr<sockaddr_in> Address(const std::string& host, const std::string& port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  int number = 0;
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1 ||
      !absl::SimpleAtoi(port, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(host, ":", port, " is not an IPv4 address"));
  }
  address.sin_port = htons(static_cast<uint16_t>(number));
  return address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeTcpStage(const Scenario& scenario, const Peers& peers) {
  const std::string& text = peers.addresses.front();
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return absl::InvalidArgumentError("the peer has no port");
  const auto address = Address(text.substr(0, colon), text.substr(colon + 1));
  if (!address.ok()) return address.status();
  return std::make_unique<TcpStage>(scenario, *address);
}

absl::Status ServeTcp(const std::string& listen_host) {
  const auto wanted = Address(listen_host, "0");
  if (!wanted.ok()) return wanted.status();
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = *wanted;
  socklen_t length = sizeof(address);
  if (listener.fd() < 0 ||
      bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.fd(), SOMAXCONN) != 0 ||
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return SystemError("cannot listen");
  }
  // These threads run until the process exits.
  std::thread([&listener] {
    for (;;) {
      Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.fd() < 0) return;
      socket.Tune();
      std::thread(Receive, std::move(socket)).detach();
    }
  }).detach();
  std::printf("peer ready address=%s:%d\n", listen_host.c_str(), ntohs(address.sin_port));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  std::fflush(stdout);
  _exit(0);
}

}  // namespace torchps
