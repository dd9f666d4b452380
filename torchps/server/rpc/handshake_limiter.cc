#include "torchps/server/rpc/handshake_limiter.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// Marks the event of called_; differs from all socket numbers.
constexpr int kCalled = -1;
// Younger handshakes are never closed for others.
constexpr absl::Duration kProtected = absl::Seconds(2);
// Reports a socket closed by the peer or by gRPC.
constexpr uint32_t kEnds = EPOLLRDHUP | EPOLLET;

epoll_event GetEvent(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return event;
}

// Closes the connection on `socket` to `address`. gRPC owns the socket and may close it at any
// time, and its number may then belong to another file. So this works on a duplicate and checks the
// peer.
void CloseConnection(int socket, const std::string& address) {
  const FileDescriptor connection(fcntl(socket, F_DUPFD_CLOEXEC, 0));
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(connection.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
      AddressText(peer, size) == address) {
    shutdown(connection.get(), SHUT_RDWR);
  }
}

}  // namespace

std::string AddressText(sockaddr_storage address, socklen_t size) {
  auto& six = reinterpret_cast<sockaddr_in6&>(address);
  if (address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = six.sin6_port;
    std::memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], sizeof(four.sin_addr));
    size = sizeof(four);
    std::memcpy(&address, &four, size);
  }
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
              sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  const bool is_ipv6 = std::strchr(host, ':') != nullptr;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string HostOfAddress(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

std::string NetworkOfAddress(const std::string& address) {
  std::string host = HostOfAddress(address);
  if (host.empty() || host.front() != '[') return host;
  // A link-local address may end with a zone, as in "[fe80::1%eth0]".
  const std::string numbers = host.substr(1, host.find_first_of("%]") - 1);
  in6_addr network{};
  if (inet_pton(AF_INET6, numbers.c_str(), &network) != 1) return host;
  std::memset(&network.s6_addr[8], 0, 8);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &network, text, sizeof(text));
  return absl::StrCat("[", text, "]/64");
}

HandshakeLimiter::HandshakeLimiter(Limits limits)
    : limits_(limits),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      called_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event = GetEvent(kCalled, EPOLLIN);
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, called_.get(), &event);
}

HandshakeLimiter::Load HandshakeLimiter::GetLoad(const std::string& address) const {
  MutexLock lock(&mutex_);
  return FindLoad(address);
}

HandshakeLimiter::Load HandshakeLimiter::FindLoad(const std::string& address) const {
  const auto network = of_network_.find(NetworkOfAddress(address));
  const auto host = of_host_.find(HostOfAddress(address));
  return {network == of_network_.end() ? 0 : network->second,
          host == of_host_.end() ? 0 : host->second};
}

bool HandshakeLimiter::MakeRoom(const std::string& address, absl::Duration now) {
  MutexLock lock(&mutex_);
  const Load load = FindLoad(address);
  const bool is_network_full = load.first >= limits_.max_of_a_network;
  if (under_way_.size() < limits_.most && !is_network_full) return true;
  const auto network = of_network_.find(NetworkOfAddress(address));
  auto chosen = under_way_.end();
  for (auto at = under_way_.begin(); at != under_way_.end(); ++at) {
    const Handshake& handshake = at->second;
    if (now - handshake.began < kProtected || handshake.load() <= load) continue;
    if (is_network_full && handshake.network != network) continue;
    if (chosen == under_way_.end() || std::make_tuple(handshake.load(), chosen->second.began) >
                                          std::make_tuple(chosen->second.load(), handshake.began)) {
      chosen = at;
    }
  }
  if (chosen == under_way_.end()) return false;
  CloseConnection(chosen->first, chosen->second.address);
  End(chosen);
  return true;
}

void HandshakeLimiter::Begin(int socket, const std::string& address, absl::Duration now) {
  MutexLock lock(&mutex_);
  if (const auto same = under_way_.find(socket); same != under_way_.end()) End(same);
  if (const auto same = socket_of_.find(address); same != socket_of_.end()) {
    End(under_way_.find(same->second));
  }
  epoll_event event = GetEvent(socket, kEnds);
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &event);
  const auto network = of_network_.emplace(NetworkOfAddress(address), 0).first;
  const auto host = of_host_.emplace(HostOfAddress(address), 0).first;
  ++network->second;
  ++host->second;
  under_way_[socket] = {address, now, network, host};
  socket_of_[address] = socket;
  count_.store(under_way_.size(), std::memory_order_relaxed);
}

void HandshakeLimiter::HasCalled(const std::string& address) {
  MutexLock lock(&mutex_);
  const auto found = socket_of_.find(address);
  if (found == socket_of_.end()) return;
  End(under_way_.find(found->second));
  const uint64_t one = 1;
  while (write(called_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void HandshakeLimiter::Sweep(absl::Duration now) {
  MutexLock lock(&mutex_);
  epoll_event event{};
  while (epoll_wait(events_.get(), &event, 1, /*timeout=*/0) > 0) {
    if (event.data.fd == kCalled) {
      uint64_t calls = 0;
      while (read(called_.get(), &calls, sizeof(calls)) < 0 && errno == EINTR) {
      }
    } else if (const auto ended = under_way_.find(event.data.fd); ended != under_way_.end()) {
      End(ended);
    }
  }
  for (auto at = under_way_.begin(); at != under_way_.end();) {
    const bool is_over = now - at->second.began >= limits_.patience || IsClosed(at->first);
    at = is_over ? End(at) : std::next(at);
  }
}

bool HandshakeLimiter::IsClosed(int socket) const {
  epoll_event event = GetEvent(socket, kEnds);
  return epoll_ctl(events_.get(), EPOLL_CTL_MOD, socket, &event) != 0;
}

HandshakeLimiter::BySocket::iterator HandshakeLimiter::End(BySocket::iterator handshake) {
  // Fails harmlessly if the socket was closed: epoll forgot it, and a new socket with the same
  // number is not registered there.
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, handshake->first, nullptr);
  const Handshake& ended = handshake->second;
  if (--ended.network->second == 0) of_network_.erase(ended.network);
  if (--ended.host->second == 0) of_host_.erase(ended.host);
  socket_of_.erase(handshake->second.address);
  const auto next = under_way_.erase(handshake);
  count_.store(under_way_.size(), std::memory_order_relaxed);
  return next;
}

}  // namespace torchps
