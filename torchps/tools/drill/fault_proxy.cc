#include "torchps/tools/drill/fault_proxy.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

void MakeNonBlocking(const FileDescriptor& socket) {
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

// Single direction of a connection: a buffer between two sockets.
struct FaultProxy::Pipe {
  const FileDescriptor* from = nullptr;
  const FileDescriptor* to = nullptr;
  char bytes[64 << 10];
  size_t begin = 0;
  size_t end = 0;
  bool from_ended = false;
  bool finished = false;  // forwarded the end of the stream
  // Bytes to forward before the connection breaks.
  uint64_t allowance = UINT64_MAX;

  bool empty() const { return begin == end; }
  bool wants_read() const { return empty() && !from_ended; }

  // Returns false if the connection is broken or must be reset.
  bool Move() {
    while (true) {
      if (wants_read()) {
        const ssize_t got = recv(from->get(), bytes, sizeof(bytes), 0);
        if (got < 0) return errno == EAGAIN;
        begin = 0;
        end = static_cast<size_t>(got);
        from_ended = got == 0;
      }
      if (empty()) {
        if (!finished) shutdown(to->get(), SHUT_WR);
        finished = true;
        return true;
      }
      const size_t count = static_cast<size_t>(std::min<uint64_t>(end - begin, allowance));
      const ssize_t sent = send(to->get(), bytes + begin, count, MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN;
      begin += static_cast<size_t>(sent);
      allowance -= static_cast<uint64_t>(sent);
      if (allowance == 0) return false;
    }
  }
};

struct FaultProxy::Connection {
  FileDescriptor client;
  FileDescriptor target;
  Pipe up;    // client to target
  Pipe down;  // target to client
};

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(Options options) {
  std::string address;
  absl::StatusOr<FileDescriptor> listener = ListenOnLoopback(&address);
  if (!listener.ok()) return listener.status();
  MakeNonBlocking(*listener);
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TPS_CHECK(wake.get() >= 0, "cannot make an eventfd");
  return absl::WrapUnique(
      new FaultProxy(std::move(options), *std::move(listener), address, std::move(wake)));
}

FaultProxy::FaultProxy(Options options, FileDescriptor listener, std::string address,
                       FileDescriptor wake)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      address_(std::move(address)),
      wake_(std::move(wake)),
      random_(options_.seed),
      thread_([this] { Run(); }) {}

FaultProxy::~FaultProxy() {
  Order([](Orders& orders) { orders.stop = true; });
  thread_.join();
}

void FaultProxy::ResetAll() {
  Order([](Orders& orders) { orders.reset = true; });
}

void FaultProxy::SetBlackHole(bool on) {
  Order([on](Orders& orders) { orders.black_hole = on; });
}

void FaultProxy::Heal() {
  Order([](Orders& orders) { orders.healed = true; });
}

void FaultProxy::Order(absl::FunctionRef<void(Orders&)> change) {
  MutexLock lock(&mutex_);
  change(orders_);
  const uint64_t mine = ++orders_.number;
  const uint64_t one = 1;
  TPS_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one), "cannot write to an eventfd");
  while (obeyed_ < mine) obeyed_changed_.Wait(&mutex_);
}

uint64_t FaultProxy::accepted() const {
  MutexLock lock(&mutex_);
  return accepted_;
}

uint64_t FaultProxy::resets() const {
  MutexLock lock(&mutex_);
  return resets_;
}

void FaultProxy::Run() {
  const SteadyClock clock;
  absl::Duration next_reset = clock.Now() + options_.reset_period;
  std::vector<pollfd> files;
  while (true) {
    Orders orders;
    {
      MutexLock lock(&mutex_);
      orders = orders_;
      orders_.reset = false;
    }
    const bool due = !orders.healed && clock.Now() >= next_reset;
    if (due) next_reset += options_.reset_period;
    if (due || orders.reset || orders.stop) ResetOpen();
    {
      MutexLock lock(&mutex_);
      obeyed_ = orders.number;
      obeyed_changed_.SignalAll();
    }
    if (orders.stop) return;

    files.assign(1, {wake_.get(), POLLIN, 0});
    if (!orders.black_hole) {
      Accept(orders);
      files.push_back({listener_.get(), POLLIN, 0});
      for (auto it = connections_.begin(); it != connections_.end();) {
        Connection& connection = *it;
        if (orders.healed) connection.up.allowance = UINT64_MAX;
        if (!Move(connection)) {
          it = connections_.erase(it);
          continue;
        }
        // Leaves out a socket that has nothing to read or write. poll() always reports errors of a
        // socket, so the loop would not wait.
        const auto watch = [&files](const FileDescriptor& end, const Pipe& in, const Pipe& out) {
          const auto events =
              static_cast<short>((in.wants_read() ? POLLIN : 0) | (out.empty() ? 0 : POLLOUT));
          files.push_back({events == 0 ? -1 : end.get(), events, 0});
        };
        watch(connection.client, connection.up, connection.down);
        watch(connection.target, connection.down, connection.up);
        ++it;
      }
    }
    const absl::Duration wait = orders.healed ? absl::InfiniteDuration() : next_reset - clock.Now();
    const int milliseconds =
        wait == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(wait) + 1));
    poll(files.data(), files.size(), milliseconds);
    uint64_t ignored;
    if (read(wake_.get(), &ignored, sizeof(ignored)) < 0) continue;  // not woken by a request
  }
}

void FaultProxy::Accept(const Orders& orders) {
  while (true) {
    FileDescriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() < 0) return;
    // Does not block, because a frozen target would delay the other connections.
    absl::StatusOr<FileDescriptor> target = BeginTcp(options_.target);
    if (!target.ok()) {
      CloseWithReset(std::move(client));
      continue;
    }
    MakeNonBlocking(client);
    for (const FileDescriptor* const end : {&client, &*target}) {
      // With Nagle's algorithm, small messages would wait for the peer's delayed acknowledgement.
      const int on = 1;
      setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    connections_.emplace_back();
    Connection& connection = connections_.back();
    connection.client = std::move(client);
    connection.target = *std::move(target);
    connection.up.from = &connection.client;
    connection.up.to = &connection.target;
    connection.down.from = &connection.target;
    connection.down.to = &connection.client;
    if (options_.cut_within_bytes > 0 && !orders.healed) {
      connection.up.allowance = 1 + UniformBelow(random_, options_.cut_within_bytes);
    }
    MutexLock lock(&mutex_);
    ++accepted_;
  }
}

bool FaultProxy::Move(Connection& connection) {
  if (!connection.up.Move() || !connection.down.Move()) {
    CloseWithReset(std::move(connection.client));
    CloseWithReset(std::move(connection.target));
    MutexLock lock(&mutex_);
    ++resets_;
    return false;
  }
  return !connection.up.finished || !connection.down.finished;
}

void FaultProxy::ResetOpen() {
  MutexLock lock(&mutex_);
  resets_ += connections_.size();
  for (Connection& connection : connections_) {
    CloseWithReset(std::move(connection.client));
    CloseWithReset(std::move(connection.target));
  }
  connections_.clear();
}

absl::StatusOr<std::string> Relays::Open(int worker, const std::vector<std::string>& servers) {
  std::string ways;
  for (size_t i = 0; i < servers.size(); ++i) {
    Relay& relay = relays_[{worker, static_cast<int>(i)}];
    if (relay.proxy == nullptr) {
      FaultProxy::Options options;
      options.target = servers[i];
      auto proxy = FaultProxy::Start(std::move(options));
      if (!proxy.ok()) return proxy.status();
      relay.proxy = *std::move(proxy);
    }
    absl::StrAppend(&ways, i > 0 ? "," : "", servers[i], "=", relay.proxy->address());
  }
  return ways;
}

void Relays::Cut(const std::vector<NetworkLink>& links) {
  for (const NetworkLink& link : links) {
    const auto found = relays_.find(link);
    if (found != relays_.end() && found->second.cuts++ == 0)
      found->second.proxy->SetBlackHole(true);
  }
}

void Relays::Join(const std::vector<NetworkLink>& links) {
  for (const NetworkLink& link : links) {
    const auto found = relays_.find(link);
    if (found == relays_.end() || found->second.cuts == 0) continue;
    if (--found->second.cuts == 0) found->second.proxy->SetBlackHole(false);
  }
}

void Relays::Reset(const std::vector<NetworkLink>& links) {
  for (const NetworkLink& link : links) {
    const auto found = relays_.find(link);
    if (found != relays_.end()) found->second.proxy->ResetAll();
  }
}

}  // namespace torchps
