#include "torchps/server/rpc/connection_filter.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/security/local_peer.h"
#include "torchps/server/rpc/listening_sockets.h"

namespace torchps {
namespace {

// Time that a refused client gets to read the reason.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// Retry interval while waiting for free descriptors or for the end of a handshake.
constexpr absl::Duration kPause = absl::Milliseconds(100);
// Time between two sweeps of the handshake limiter while connections do not wait for it.
constexpr absl::Duration kLook = absl::Seconds(1);
// If the process's descriptor limit is low, WithinFileLimit() reduces max_waiting,
// handshake_limiter.most and reserved_files to these parts of it: 1/4, 1/8, 1/4. Unauthenticated
// clients must leave descriptors for workers.
constexpr int64_t kWaitingPart = 4;
constexpr int64_t kHandshakesPart = 8;
constexpr int64_t kReservedPart = 4;
constexpr int kEvents = 64;

std::string Words(int error) { return absl::AsciiStrToLower(std::strerror(error)); }

// Returns true if the TLS record that begins with `seen` is completely readable.
bool HasWholeRecord(int socket, absl::string_view seen) {
  const std::optional<size_t> bytes = TlsRecordBytes(seen);
  int unread = 0;
  return bytes.has_value() && ioctl(socket, FIONREAD, &unread) == 0 &&
         static_cast<size_t>(unread) >= *bytes;
}

ConnectionFilter::Options WithinFileLimit(ConnectionFilter::Options options) {
  const int64_t files = OpenFileLimit();
  const auto at_most = [](size_t wanted, int64_t part) {
    return std::min(wanted, static_cast<size_t>(std::max<int64_t>(part, 1)));
  };
  options.max_waiting = at_most(options.max_waiting, files / kWaitingPart);
  options.handshake_limiter.most = at_most(options.handshake_limiter.most, files / kHandshakesPart);
  options.reserved_files = std::min(options.reserved_files, files / kReservedPart);
  return options;
}

}  // namespace

ConnectionFilter::ConnectionFilter(Options options)
    : options_(WithinFileLimit(std::move(options))),
      log_(options_.log),
      handshake_limiter_(options_.handshake_limiter) {}

absl::StatusOr<std::unique_ptr<ConnectionFilter>> ConnectionFilter::Create(Options options) {
  auto filter = absl::WrapUnique(new ConnectionFilter(std::move(options)));
  if (absl::Status status = filter->Listen(); !status.ok()) return status;
  return filter;
}

ConnectionFilter::~ConnectionFilter() { Close(); }

absl::Status ConnectionFilter::Listen() {
  absl::StatusOr<ListeningSockets> listening = OpenListeningSockets(options_.host, options_.port);
  if (!listening.ok()) return listening.status();
  listeners_ = std::move(listening->sockets);
  port_ = listening->port;
  poll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (poll_.get() < 0 || wake_.get() < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.host, ":", port_, ": ", Words(errno)));
  }
  Watch(wake_.get(), EPOLLIN, next_number_++);
  for (const FileDescriptor& listener : listeners_) {
    Watch(listener.get(), EPOLLIN, next_number_++);
  }
  Watch(handshake_limiter_.event_fd(), EPOLLIN, next_number_++);
  return absl::OkStatus();
}

void ConnectionFilter::Watch(int fd, uint32_t events, uint64_t number) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void ConnectionFilter::Open() {
  thread_ = std::thread([this] { Serve(); });
}

void ConnectionFilter::Close() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  peers_.clear();
  waiting_ = 0;
  listeners_.clear();
}

void ConnectionFilter::Serve() {
  epoll_event events[kEvents];
  while (true) {
    const absl::Duration wait = DismissLate();
    const int timeout = wait == absl::InfiniteDuration()
                            ? -1
                            : static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
    const int count = epoll_wait(poll_.get(), events, kEvents, timeout);
    if (paused_) {
      paused_ = false;
      for (size_t i = 0; i < listeners_.size(); ++i) Watch(listeners_[i].get(), EPOLLIN, i + 1);
    }
    // An empty limiter needs no sweep, with one exception: after its last handshake ended, its
    // event_fd() stays readable until Sweep(). So that event also causes a sweep below.
    bool sweep = !handshake_limiter_.empty();
    for (int i = 0; i < count; ++i) {
      const uint64_t number = events[i].data.u64;
      if (number == 0) return;
      if (number == listeners_.size() + 1) sweep = true;
      if (number <= listeners_.size()) {
        Accept(listeners_[number - 1].get());
      } else if (const auto peer = peers_.find(number); peer != peers_.end()) {
        Inspect(peer, (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
      }
    }
    if (sweep) handshake_limiter_.Sweep(options_.clock->Now());
    AdmitWaiting();
  }
}

void ConnectionFilter::Accept(int listener) {
  // Accepts a limited batch, so that waiting connections are served in between.
  for (int i = 0; i < kEvents; ++i) {
    if (!HasFreeFile()) {
      log_.Log(absl::StrCat("does not accept connections while fewer than ",
                            options_.reserved_files, " of its ", OpenFileLimit(),
                            " file descriptors are free; raise the limit with 'ulimit -n'"),
               absl::Now());
      Pause();
      return;
    }
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    FileDescriptor connection(accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                                      SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.get() >= 0) {
      Receive(std::move(connection), AddressText(address, size));
      continue;
    }
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      log_.Log(absl::StrCat("cannot accept another connection: ", Words(error)), absl::Now());
      Pause();
    }
    if (error != ECONNABORTED && error != EINTR) return;
  }
}

bool ConnectionFilter::HasFreeFile() const {
  // The kernel returns the lowest free descriptor number.
  const FileDescriptor next(fcntl(wake_.get(), F_DUPFD_CLOEXEC, 0));
  return next.get() >= 0 && next.get() + options_.reserved_files < OpenFileLimit();
}

void ConnectionFilter::Pause() {
  if (paused_) return;
  paused_ = true;
  for (const FileDescriptor& listener : listeners_) {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
  }
  // Frees one descriptor at once.
  if (!peers_.empty()) Forget(peers_.begin());
}

void ConnectionFilter::Receive(FileDescriptor connection, std::string address) {
  const int yes = 1;
  setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (peers_.size() >= options_.max_waiting) {
    log_.Log(absl::StrCat(
                 "closes the oldest connections that have sent nothing or too little: more than ",
                 options_.max_waiting, " are open"),
             absl::Now());
    Forget(peers_.begin());
  }
  const uint64_t number = next_number_++;
  // Edge-triggered, because the bytes that were peeked at stay in the socket.
  Watch(connection.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, number);
  Peer& peer = peers_[number];
  peer.connection = std::move(connection);
  peer.address = std::move(address);
  peer.deadline = options_.clock->Now() + options_.patience;
}

void ConnectionFilter::Inspect(Peers::iterator at, bool ended) {
  Peer& peer = at->second;
  const int fd = peer.connection.get();
  char bytes[kSniffedBytes];
  if (peer.leaving) {
    char thrown_away[4096];
    ssize_t got = 0;
    while ((got = recv(fd, thrown_away, sizeof(thrown_away), 0)) > 0) {
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) Forget(at);
    return;
  }
  if (peer.waits) {
    if (ended) Forget(at);
    return;
  }
  const ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_PEEK);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    // The peer closed the connection without sending a byte, as a port scan or a health check does.
    Forget(at);
    return;
  }
  if (got < 0) return;
  const absl::string_view seen(bytes, got);
  const Protocol protocol = SniffProtocol(seen);
  if (protocol == Protocol::kUndecided) {
    if (ended) Forget(at);
    return;
  }
  const std::string reason = ReasonToRefuse(peer, protocol, seen);
  if (!reason.empty()) {
    Refuse(peer, protocol, reason);
  } else if (!options_.tls) {
    Admit(at);
  } else if (ended) {
    Forget(at);
  } else if (HasWholeRecord(fd, seen)) {
    peer.waits = true;
    ++waiting_;
  }
}

void ConnectionFilter::AdmitWaiting() {
  if (waiting_ == 0) return;
  // Clients with few handshakes in progress go first, so that a crowd cannot delay a new client.
  std::multimap<HandshakeLimiter::Load, Peers::iterator> waiting;
  for (auto at = peers_.begin(); at != peers_.end(); ++at) {
    if (at->second.waits) waiting.emplace(handshake_limiter_.GetLoad(at->second.address), at);
  }
  const absl::Duration now = options_.clock->Now();
  // After a refusal, later peers of the same network have no better chance.
  std::set<std::string> refused;
  for (const auto& [load, peer] : waiting) {
    const std::string network = NetworkOfAddress(peer->second.address);
    if (refused.count(network) > 0) continue;
    if (handshake_limiter_.MakeRoom(peer->second.address, now)) {
      Admit(peer);
    } else {
      refused.insert(network);
    }
  }
}

void ConnectionFilter::Admit(Peers::iterator at) {
  FileDescriptor connection = std::move(at->second.connection);
  epoll_ctl(poll_.get(), EPOLL_CTL_DEL, connection.get(), nullptr);
  if (options_.tls) {
    handshake_limiter_.Begin(connection.get(), at->second.address, options_.clock->Now());
  }
  Forget(at);
  options_.admit(std::move(connection));
}

ConnectionFilter::Peers::iterator ConnectionFilter::Forget(Peers::iterator peer) {
  if (peer->second.waits) --waiting_;
  return peers_.erase(peer);
}

std::string ConnectionFilter::ReasonToRefuse(const Peer& peer, Protocol protocol,
                                             absl::string_view bytes) const {
  switch (protocol) {
    case Protocol::kHttp2:
      if (options_.tls) {
        return "speaks without TLS, but this server requires TLS; start it with --certs=DIR";
      }
      break;
    case Protocol::kTls:
      if (!options_.tls) {
        return "speaks TLS, but this server runs without it; start both with --certs=DIR, or "
               "neither";
      }
      break;
    case Protocol::kTlsAlert:
      return AlertInWords(bytes);
    case Protocol::kHttp1:
      return "speaks HTTP/1; this is a torchps server, for ps_worker and psctl";
    case Protocol::kOther:
    case Protocol::kUndecided:
      return "speaks neither HTTP/2 nor TLS; this is a torchps server, for ps_worker and psctl";
  }
  if (!options_.own_user_only) return "";
  const absl::StatusOr<uid_t> owner = OwnerOfPeer(peer.connection.get());
  const absl::Status served =
      owner.ok() ? CheckOwner(*owner, geteuid(), OverflowUser()) : owner.status();
  if (served.ok()) return "";
  if (absl::IsPermissionDenied(served)) {
    return absl::StrCat(served.message(), ", and without TLS this server serves only user ",
                        geteuid(), ", which runs it; use --certs=DIR on both sides");
  }
  return absl::StrCat("is refused because this server serves only its own user and ",
                      served.message(),
                      "; use --certs=DIR on both sides, or --insecure to serve every user");
}

void ConnectionFilter::Refuse(Peer& peer, Protocol protocol, const std::string& reason) {
  LogRefusal(peer, reason);
  std::string answer;
  if (protocol == Protocol::kHttp2) answer = GoAwayFrame(absl::StrCat("this client ", reason));
  if (protocol == Protocol::kTls) answer = NoTlsAlert();
  if (protocol == Protocol::kHttp1)
    answer = Http1Refusal(absl::StrCat("This client ", reason, "."));
  const int fd = peer.connection.get();
  // The answer fits into an empty socket buffer. If the send fails, the filter still refuses the
  // client.
  if (!answer.empty()) send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  peer.leaving = true;
  peer.deadline = options_.clock->Now() + kFarewell;
  // Do not close at once. Unread bytes would then cause a reset that overtakes the answer.
  char thrown_away[4096];
  while (recv(fd, thrown_away, sizeof(thrown_away), 0) > 0) {
  }
}

void ConnectionFilter::LogRefusal(const Peer& peer, const std::string& what) {
  // Log the host only, because the port differs with every connection.
  log_.Log(absl::StrCat("refused a client at ", HostOfAddress(peer.address), ": it ", what),
           absl::Now());
}

absl::Duration ConnectionFilter::DismissLate() {
  absl::Duration next = handshake_limiter_.empty() ? absl::InfiniteDuration() : kLook;
  if (paused_ || waiting_ > 0) next = kPause;
  if (peers_.empty()) return next;
  const absl::Duration now = options_.clock->Now();
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (at->second.deadline > now) {
      next = std::min(next, at->second.deadline - now);
      ++at;
      continue;
    }
    if (at->second.waits) {
      LogRefusal(at->second,
                 absl::StrCat("has waited too long for its TLS handshake; the limit is ",
                              options_.handshake_limiter.most, " at a time, ",
                              options_.handshake_limiter.max_of_a_network,
                              " from one address or IPv6 /64 network"));
    } else if (!at->second.leaving) {
      LogRefusal(at->second, "has not sent a recognizable request in time");
    }
    at = Forget(at);
  }
  return next;
}

}  // namespace torchps
