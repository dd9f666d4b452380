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

// The TLS handshakes that gRPC has under way at a server. Until one is over nobody knows whose the
// connection is, so that only so many may be under way at a time, in all and from one host.
//
// A handshake is over when its connection makes a call, when it is closed, or when it has had the
// time that gRPC gives it. Only the first of these is told: gRPC owns the connection. The other two
// are found out by Sweep(), the end of a connection from the kernel: an epoll instance forgets a
// file that is closed.
//
// Thread-safe.
class HandshakeLimiter {
 public:
  struct Limits {
    size_t most = 256;
    size_t max_of_a_host = 32;
    // As long as gRPC gives a handshake.
    absl::Duration patience = absl::Seconds(10);
  };

  explicit HandshakeLimiter(Limits limits);

  // Readable when a handshake has ended since the last Sweep(), as far as that is told at all.
  int event_fd() const { return events_.get(); }

  // Whether one more may begin; host as in "10.0.0.2" or "[::1]".
  bool HasRoom(const std::string& host) const;

  // One more begins, on a socket that the caller has and will hand to gRPC; `address` is the other
  // end's, "HOST:PORT".
  void Begin(int socket, const std::string& address, absl::Duration now);

  // None is under way, so no call can end one: asked for each call of a server.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // The connection from there has made a call. Nothing happens where none is under way from there.
  void HasCalled(const std::string& address);

  // Looks for those that have ended.
  void Sweep(absl::Duration now);

 private:
  struct Handshake {
    std::string address;
    absl::Duration deadline;
  };
  // By the socket's number. One whose number another connection has got was closed.
  using BySocket = std::map<int, Handshake>;

  BySocket::iterator End(BySocket::iterator handshake) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsClosed(int socket) const;

  const Limits limits_;
  const FileDescriptor events_;  // an epoll instance
  const FileDescriptor called_;  // an eventfd in it
  std::atomic<size_t> count_{0};

  mutable Mutex mutex_;
  BySocket under_way_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> socket_of_ ABSL_GUARDED_BY(mutex_);  // by address
  std::map<std::string, size_t> of_host_ ABSL_GUARDED_BY(mutex_);
};

// "10.0.0.2" of "10.0.0.2:4711", "[::1]" of "[::1]:4711".
std::string HostOfAddress(const std::string& address);

}  // namespace torchps
