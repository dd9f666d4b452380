// raw_tcp, raw_tcp_answered and raw_tcp_applied: what two processes with plain sockets reach, for
// everything else to be compared with.
//
// The sender writes its message in pieces of 1 MiB from a buffer as large as the message; the
// receiver reads into a buffer of 1 MiB that it uses again and again. raw_tcp just writes on;
// raw_tcp_answered waits after each message for one byte that says that all of it has come. In
// raw_tcp_applied that byte says that the message has been applied: whenever its buffer is full the
// receiver looks through it for numbers that are not finite and applies it, as a server does.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "bench/data_plane/local_model.h"
#include "bench/data_plane/numbers.h"
#include "bench/data_plane/operation.h"
#include "bench/data_plane/tcp.h"
#include "common/cpu/finite_check.h"

namespace torchps {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// Named, since the default differs between machines and decides by a factor of three.
constexpr char kCongestionControl[] = "cubic";
// The first byte of a connection.
constexpr char kStreams = 's';
constexpr char kAwaitsAnswers = 'a';
constexpr char kApplied = 'm';
constexpr char kAnswer = '!';

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// A socket that is closed with its owner.
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

  // A kernel may keep cubic from whoever is not root; the rows say what was in force.
  void Tune() {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, kCongestionControl,
               sizeof(kCongestionControl) - 1);
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

  absl::Status AwaitAnswer() {
    char answer;
    size_t got;
    if (!ReadSome(&answer, 1, &got)) return SystemError("a message was not answered");
    return absl::OkStatus();
  }

  // False at the end of the connection.
  bool ReadAll(char* data, size_t bytes) {
    return recv(fd_, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  bool ReadSome(char* data, size_t bytes, size_t* got) {
    const ssize_t read = recv(fd_, data, bytes, 0);
    if (read <= 0) return false;
    *got = read;
    return true;
  }

 private:
  int fd_;
};

class SendMessage final : public Operation {
 public:
  SendMessage(Socket socket, bool awaits_answers, const std::vector<float>* message)
      : socket_(std::move(socket)), awaits_answers_(awaits_answers), message_(message) {}

  absl::Status Run() override {
    const absl::Status written = socket_.Write(reinterpret_cast<const char*>(message_->data()),
                                               message_->size() * sizeof(float));
    return written.ok() && awaits_answers_ ? socket_.AwaitAnswer() : written;
  }

 private:
  Socket socket_;
  const bool awaits_answers_;
  const std::vector<float>* const message_;
};

class TcpStage final : public Stage {
 public:
  TcpStage(const Scenario& scenario, sockaddr_in peer)
      : peer_(peer), message_(SomeFloats(scenario.bytes / sizeof(float))) {}

  absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view name) override {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) return SystemError("no socket");
    socket.Tune();
    if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_)) != 0) {
      return SystemError("cannot connect to the raw TCP peer");
    }
    const char kind = name == "raw_tcp_applied"    ? kApplied
                      : name == "raw_tcp_answered" ? kAwaitsAnswers
                                                   : kStreams;
    if (absl::Status said = socket.Write(&kind, 1); !said.ok()) return said;
    if (kind == kApplied) {
      // Its model is there.
      if (absl::Status ready = socket.AwaitAnswer(); !ready.ok()) return ready;
    }
    return std::make_unique<SendMessage>(std::move(socket), kind != kStreams, &message_);
  }

 private:
  const sockaddr_in peer_;
  const std::vector<float> message_;
};

// To the end of the connection, or of what can be applied.
void Apply(Socket& socket, LocalModel& model) {
  std::vector<float> block(LocalModel::kBlockElements);
  while (socket.Write(&kAnswer, 1).ok()) {
    for (int64_t begin = 0; begin < model.elements(); begin += LocalModel::kBlockElements) {
      const absl::Span<float> gradient(block.data(), model.BlockElements(begin));
      if (!socket.ReadAll(reinterpret_cast<char*>(gradient.data()),
                          gradient.size() * sizeof(float)) ||
          FirstNonFinite(gradient) >= 0) {
        return;
      }
      model.ApplyBlock(begin, gradient.data());
    }
    model.EndStep();
  }
}

void ThrowAway(Socket& socket, size_t message_bytes, bool answers) {
  std::vector<char> buffer(kPieceBytes);
  size_t got = 0;
  size_t of_message = 0;
  while (socket.ReadSome(buffer.data(), buffer.size(), &got)) {
    of_message += got;
    for (; of_message >= message_bytes; of_message -= message_bytes) {
      if (answers && !socket.Write(&kAnswer, 1).ok()) return;
    }
  }
}

// One connection, until its end.
void Receive(Socket socket, const Scenario& scenario) {
  char kind = 0;
  if (!socket.ReadAll(&kind, 1)) return;
  if (kind != kApplied) return ThrowAway(socket, scenario.bytes, kind == kAwaitsAnswers);
  const absl::StatusOr<std::unique_ptr<LocalModel>> model = LocalModel::Create(scenario);
  if (model.ok()) return Apply(socket, **model);
  std::fprintf(stderr, "data_plane: %s\n", std::string(model.status().message()).c_str());
}

absl::StatusOr<sockaddr_in> Address(const std::string& host, const std::string& port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  int number = 0;
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1 ||
      !absl::SimpleAtoi(port, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(host, ":", port, " is no IPv4 address"));
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

absl::Status ServeTcp(const Scenario& scenario, const std::string& listen_host) {
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
  // The threads end with the process.
  std::thread([&listener, &scenario] {
    for (;;) {
      Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.fd() < 0) return;
      socket.Tune();
      std::thread(Receive, std::move(socket), std::cref(scenario)).detach();
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
