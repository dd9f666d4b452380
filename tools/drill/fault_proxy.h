#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "tools/base/tcp.h"

namespace torchps {

// A network that breaks: a TCP proxy on a free port of 127.0.0.1 that passes bytes on to a target
// until it is told, by the clock, by a count of bytes or by its owner, to break connections.
//
// A broken connection is reset in both directions, so that each side may have sent what the other
// never reads. Thread-safe; one thread of its own does all the work.
class FaultProxy {
 public:
  struct Options {
    // "127.0.0.1:PORT".
    std::string target;
    // All connections are reset at every multiple of this after the start; infinite: never.
    absl::Duration reset_period = absl::InfiniteDuration();
    // Each connection is reset when it has passed on a number of the client's bytes that is drawn
    // evenly from [1, this]; 0: never.
    uint64_t cut_within_bytes = 0;
    // Of the draws.
    uint64_t seed = 1;
  };

  // UNAVAILABLE: no port is free.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(Options options);

  // Resets what is open and stops.
  ~FaultProxy();

  const std::string& address() const { return address_; }

  // Each of these has happened when it returns.

  // Resets all connections that are open now.
  void ResetAll();

  // While on, nothing passes and nobody is told: connections stay open, and new ones get as far as
  // the kernel takes them. What was sent meanwhile passes later.
  void SetBlackHole(bool on);

  // No more faults from now on: a plain proxy.
  void Heal();

  // Connections that came, and that were reset by this proxy.
  uint64_t accepted() const;
  uint64_t resets() const;

 private:
  struct Pipe;
  struct Connection;
  // What its owner wants.
  struct Orders {
    bool stop = false;
    bool healed = false;
    bool black_hole = false;
    bool reset = false;   // once
    uint64_t number = 0;  // orders given so far
  };

  FaultProxy(Options options, FileDescriptor listener, std::string address, FileDescriptor wake);

  // Gives an order and waits until the thread has obeyed it.
  void Order(absl::FunctionRef<void(Orders&)> change);

  void Run();
  void Accept(const Orders& orders);
  // Moves what can be moved without waiting; false when the connection is over.
  bool Move(Connection& connection);
  void ResetOpen();

  const Options options_;
  const FileDescriptor listener_;
  const std::string address_;
  const FileDescriptor wake_;  // eventfd

  // The thread's own.
  std::list<Connection> connections_;
  uint64_t random_;

  mutable Mutex mutex_;
  CondVar obeyed_changed_;
  Orders orders_ ABSL_GUARDED_BY(mutex_);
  uint64_t obeyed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t resets_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;
};

}  // namespace torchps
