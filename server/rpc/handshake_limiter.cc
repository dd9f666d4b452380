#include "server/rpc/handshake_limiter.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace torchps {
namespace {

// Marks the event of called_; differs from all socket numbers.
constexpr int kCalled = -1;
// Reports a socket closed by the peer or by gRPC.
constexpr uint32_t kEnds = EPOLLRDHUP | EPOLLET;

epoll_event GetEvent(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return event;
}

}  // namespace

std::string HostOfAddress(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

HandshakeLimiter::HandshakeLimiter(Limits limits)
    : limits_(limits),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      called_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event = GetEvent(kCalled, EPOLLIN);
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, called_.get(), &event);
}

bool HandshakeLimiter::HasRoom(const std::string& host) const {
  MutexLock lock(&mutex_);
  if (under_way_.size() >= limits_.most) return false;
  const auto of_host = of_host_.find(host);
  return of_host == of_host_.end() || of_host->second < limits_.max_of_a_host;
}

void HandshakeLimiter::Begin(int socket, const std::string& address, absl::Duration now) {
  MutexLock lock(&mutex_);
  if (const auto same = under_way_.find(socket); same != under_way_.end()) End(same);
  if (const auto same = socket_of_.find(address); same != socket_of_.end()) {
    End(under_way_.find(same->second));
  }
  epoll_event event = GetEvent(socket, kEnds);
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &event);
  under_way_[socket] = {address, now + limits_.patience};
  socket_of_[address] = socket;
  ++of_host_[HostOfAddress(address)];
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
    const bool is_over = at->second.deadline <= now || IsClosed(at->first);
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
  const auto of_host = of_host_.find(HostOfAddress(handshake->second.address));
  if (--of_host->second == 0) of_host_.erase(of_host);
  socket_of_.erase(handshake->second.address);
  const auto next = under_way_.erase(handshake);
  count_.store(under_way_.size(), std::memory_order_relaxed);
  return next;
}

}  // namespace torchps
