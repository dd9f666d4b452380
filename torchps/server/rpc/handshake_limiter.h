#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "torchps/common/mutex.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {

// Counts the TLS handshakes in progress at a server. Connections are not authenticated before the
// handshake ends. So this class limits concurrent handshakes, in total and for each network: an
// IPv4 address, or the /64 of an IPv6 address, because one machine can use all addresses of a /64.
//
// At a limit, a new handshake may replace one that is at least 2 s old and comes from a network or
// host with more handshakes in progress. A torchps client ends an attempt to connect after 1 s.
//
// A handshake ends when the connection makes a call, when the connection is closed, or when gRPC's
// handshake timeout expires. HasCalled() reports only the first case, because gRPC owns the
// connection. Sweep() detects the other two. It detects a closed connection through epoll, because
// an epoll instance forgets a closed file.
//
// Thread-safe.
class HandshakeLimiter {
 public:
  struct Limits {
    size_t most = 256;
    size_t max_of_a_network = 32;
    // Equal to gRPC's handshake timeout.
    absl::Duration patience = absl::Seconds(10);
  };

  explicit HandshakeLimiter(Limits limits);

  // Descriptor that is readable if a handshake has ended since the last Sweep(). It does not show
  // the ends that only Sweep() detects.
  int event_fd() const { return events_.get(); }

  // Number of handshakes in progress from a network, and from a host in it.
  using Load = std::pair<size_t, size_t>;

  // Returns the load of the network and the host of `address`, the peer's "HOST:PORT".
  Load GetLoad(const std::string& address) const;

  // Returns true if a handshake from `address` may begin. If a limit is reached, closes the
  // connection of another handshake for it, or returns false. Among the handshakes that it may
  // close, it chooses the highest load, then the oldest.
  bool MakeRoom(const std::string& address, absl::Duration now);

  // Begins a handshake on `socket`, which the caller owns and passes on to gRPC afterwards.
  // `address` is the peer's "HOST:PORT".
  void Begin(int socket, const std::string& address, absl::Duration now);

  // Returns true if there are no handshakes in progress. Cheap, because the server checks it for
  // each call.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Ends the handshake of the connection from `address`, which has made a call. Does nothing if
  // there is no such handshake.
  void HasCalled(const std::string& address);

  // Removes the handshakes that have ended.
  void Sweep(absl::Duration now);

 private:
  using Counts = std::map<std::string, size_t>;
  struct Handshake {
    std::string address;
    absl::Duration began;
    Counts::iterator network;
    Counts::iterator host;

    Load load() const { return {network->second, host->second}; }
  };
  // Keyed by socket number. If a new connection uses a number that is still listed, the old
  // connection was closed.
  using BySocket = std::map<int, Handshake>;

  Load FindLoad(const std::string& address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  BySocket::iterator End(BySocket::iterator handshake) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsClosed(int socket) const;

  const Limits limits_;
  const FileDescriptor events_;  // epoll instance
  const FileDescriptor called_;  // eventfd registered in events_
  std::atomic<size_t> count_{0};

  mutable Mutex mutex_;
  BySocket under_way_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> socket_of_ ABSL_GUARDED_BY(mutex_);  // by address
  Counts of_network_ ABSL_GUARDED_BY(mutex_);
  Counts of_host_ ABSL_GUARDED_BY(mutex_);
};

// Returns "10.0.0.2" for "10.0.0.2:4711" and "[::1]" for "[::1]:4711".
std::string HostOfAddress(const std::string& address);

// Returns "10.0.0.2" for "10.0.0.2:4711" and "[fd77::]/64" for "[fd77::1]:4711".
std::string NetworkOfAddress(const std::string& address);

// Returns a socket address as "HOST:PORT", in gRPC's notation: an IPv4-mapped IPv6 address as IPv4.
std::string AddressText(sockaddr_storage address, socklen_t size);

}  // namespace torchps
