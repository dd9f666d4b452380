#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/process/file_descriptor.h"

namespace torchps {

// Counts the TLS handshakes in progress at a server. Connections are not authenticated before the
// handshake ends. So this class limits concurrent handshakes, in total and for each host.
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
    size_t max_of_a_host = 32;
    // Equal to gRPC's handshake timeout.
    absl::Duration patience = absl::Seconds(10);
  };

  explicit HandshakeLimiter(Limits limits);

  // Descriptor that is readable if a handshake has ended since the last Sweep(). It does not show
  // the ends that only Sweep() detects.
  int event_fd() const { return events_.get(); }

  // Returns true if another handshake from `host` may begin; `host` as in "10.0.0.2" or "[::1]".
  bool HasRoom(const std::string& host) const;

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
  struct Handshake {
    std::string address;
    absl::Duration deadline;
  };
  // Keyed by socket number. If a new connection uses a number that is still listed, the old
  // connection was closed.
  using BySocket = std::map<int, Handshake>;

  BySocket::iterator End(BySocket::iterator handshake) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsClosed(int socket) const;

  const Limits limits_;
  const FileDescriptor events_;  // epoll instance
  const FileDescriptor called_;  // eventfd registered in events_
  std::atomic<size_t> count_{0};

  mutable Mutex mutex_;
  BySocket under_way_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> socket_of_ ABSL_GUARDED_BY(mutex_);  // by address
  std::map<std::string, size_t> of_host_ ABSL_GUARDED_BY(mutex_);
};

// Returns "10.0.0.2" for "10.0.0.2:4711" and "[::1]" for "[::1]:4711".
std::string HostOfAddress(const std::string& address);

}  // namespace torchps
