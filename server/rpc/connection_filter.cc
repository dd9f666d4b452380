#include "server/rpc/connection_filter.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "security/local_peer.h"

namespace torchps {
namespace {

constexpr int kBacklog = 1024;
// How long a refused client may take to read why.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// Until files may be free again.
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr int kEvents = 64;

std::string Words(int error) { return absl::AsciiStrToLower(std::strerror(error)); }

std::string AddressOf(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
              sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  const bool is_ipv6 = std::strchr(host, ':') != nullptr;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

ConnectionFilter::ConnectionFilter(Options options)
    : options_(std::move(options)), log_(options_.log) {}

absl::StatusOr<std::unique_ptr<ConnectionFilter>> ConnectionFilter::Create(Options options) {
  auto filter = absl::WrapUnique(new ConnectionFilter(std::move(options)));
  if (absl::Status status = filter->Listen(); !status.ok()) return status;
  return filter;
}

ConnectionFilter::~ConnectionFilter() { Close(); }

absl::Status ConnectionFilter::Listen() {
  std::string host = options_.host;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const auto failed = [&](const std::string& why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.host, ":", options_.port, ": ", why));
  };
  if (error != 0) return failed(error == EAI_NONAME ? "unknown host" : gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
  port_ = options_.port;
  std::string refused = "no address";
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    FileDescriptor listener(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    sockaddr_storage address{};
    std::memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (address.ss_family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port_);
    } else {
      reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port_);
    }
    const int yes = 1;
    // A restarted server gets its port back; two servers still cannot share one.
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    socklen_t size = at->ai_addrlen;
    if (listener.get() < 0 ||
        bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener.get(), kBacklog) != 0) {
      if (errno == EADDRINUSE) {
        return absl::AlreadyExistsError(absl::StrCat("cannot listen on ", options_.host, ":", port_,
                                                     ": the port is taken by another process"));
      }
      // A name may lead to an address of a kind that this machine has not.
      refused = Words(errno);
      continue;
    }
    size = sizeof(address);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ =
        ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                           : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
    listeners_.push_back(std::move(listener));
  }
  if (listeners_.empty()) return failed(refused);

  poll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (poll_.get() < 0 || wake_.get() < 0) return failed(Words(errno));
  Watch(wake_.get(), EPOLLIN, next_number_++);
  for (const FileDescriptor& listener : listeners_) {
    Watch(listener.get(), EPOLLIN, next_number_++);
  }
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
    for (int i = 0; i < count; ++i) {
      const uint64_t number = events[i].data.u64;
      if (number == 0) return;
      if (number <= listeners_.size()) {
        Accept(listeners_[number - 1].get());
      } else if (const auto peer = peers_.find(number); peer != peers_.end()) {
        Inspect(peer);
      }
    }
  }
}

void ConnectionFilter::Accept(int listener) {
  // A few at a time, so that connections that wait get their turn.
  for (int i = 0; i < kEvents; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    FileDescriptor connection(accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                                      SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.get() >= 0) {
      Receive(std::move(connection), AddressOf(address, size));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log_.Log(absl::StrCat("cannot accept another connection: ", Words(errno)), absl::Now());
      Pause();
    }
    if (errno != ECONNABORTED && errno != EINTR) return;
  }
}

void ConnectionFilter::Pause() {
  if (paused_) return;
  paused_ = true;
  for (const FileDescriptor& listener : listeners_) {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
  }
  // A connection that has said nothing has the weakest claim to a file.
  if (!peers_.empty()) peers_.erase(peers_.begin());
}

void ConnectionFilter::Receive(FileDescriptor connection, std::string address) {
  const int yes = 1;
  setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (peers_.size() >= options_.most_waiting) {
    log_.Log(absl::StrCat("closes connections that have said nothing, for more than ",
                          options_.most_waiting, " of them are open"),
             absl::Now());
    peers_.erase(peers_.begin());
  }
  const uint64_t number = next_number_++;
  // Edge-triggered: what has been looked at stays in the socket, and is no news.
  Watch(connection.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, number);
  Peer& peer = peers_[number];
  peer.connection = std::move(connection);
  peer.address = std::move(address);
  peer.deadline = options_.clock->Now() + options_.patience;
}

void ConnectionFilter::Inspect(Peers::iterator at) {
  Peer& peer = at->second;
  const int fd = peer.connection.get();
  char bytes[kSniffedBytes];
  if (peer.leaving) {
    char thrown_away[4096];
    ssize_t got = 0;
    while ((got = recv(fd, thrown_away, sizeof(thrown_away), 0)) > 0) {
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) peers_.erase(at);
    return;
  }
  const ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_PEEK);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    // Came and went: a port scan, a health check, or one that looked whether we are here.
    peers_.erase(at);
    return;
  }
  if (got < 0) return;
  const absl::string_view seen(bytes, got);
  const Protocol protocol = SniffProtocol(seen);
  if (protocol == Protocol::kUndecided) return;
  const std::string reason = ReasonToRefuse(peer, protocol, seen);
  if (!reason.empty()) {
    Refuse(peer, protocol, reason);
    return;
  }
  epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  FileDescriptor connection = std::move(peer.connection);
  peers_.erase(at);
  options_.admit(std::move(connection));
}

std::string ConnectionFilter::ReasonToRefuse(const Peer& peer, Protocol protocol,
                                             absl::string_view bytes) const {
  switch (protocol) {
    case Protocol::kHttp2:
      if (options_.tls) {
        return "speaks without TLS, and this server takes nothing else; start it with --certs=DIR";
      }
      break;
    case Protocol::kTls:
      if (!options_.tls) {
        return "speaks TLS, and this server runs without; start both with --certs=DIR, or neither";
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
  if (!owner.ok()) {
    return absl::StrCat("is refused, for this server serves its own user only and ",
                        owner.status().message());
  }
  if (*owner == geteuid() || *owner == 0) return "";
  return absl::StrCat("belongs to user ", *owner, ", and without TLS this server serves only user ",
                      geteuid(), ", as whom it runs; use --certs=DIR on both sides");
}

void ConnectionFilter::Refuse(Peer& peer, Protocol protocol, const std::string& reason) {
  LogRefusal(peer, reason);
  std::string answer;
  if (protocol == Protocol::kHttp2) answer = GoAwayFrame(absl::StrCat("this client ", reason));
  if (protocol == Protocol::kTls) answer = NoTlsAlert();
  if (protocol == Protocol::kHttp1)
    answer = Http1Refusal(absl::StrCat("This client ", reason, "."));
  const int fd = peer.connection.get();
  // It fits into an empty socket; a client that goes without it is refused all the same.
  if (!answer.empty() && send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) answer.clear();
  shutdown(fd, SHUT_WR);
  peer.leaving = true;
  peer.deadline = options_.clock->Now() + kFarewell;
  // Not closed at once: what it has sent would then come back as a reset, and overtake the answer.
  char thrown_away[4096];
  while (recv(fd, thrown_away, sizeof(thrown_away), 0) > 0) {
  }
}

void ConnectionFilter::LogRefusal(const Peer& peer, const std::string& what) {
  // Every connection has a port of its own; the sentence is about the machine.
  const std::string host = peer.address.substr(0, peer.address.rfind(':'));
  log_.Log(absl::StrCat("refused a client at ", host, ": it ", what), absl::Now());
}

absl::Duration ConnectionFilter::DismissLate() {
  absl::Duration next = paused_ ? kPause : absl::InfiniteDuration();
  if (peers_.empty()) return next;
  const absl::Duration now = options_.clock->Now();
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (at->second.deadline > now) {
      next = std::min(next, at->second.deadline - now);
      ++at;
      continue;
    }
    if (!at->second.leaving)
      LogRefusal(at->second, "has said nothing that could be understood in time");
    at = peers_.erase(at);
  }
  return next;
}

}  // namespace torchps
