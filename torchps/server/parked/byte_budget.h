#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Bounds the memory that a server's calls hold for frames at the same time. Each call reserves
// bytes before it asks gRPC for a frame, or before it copies a block to send. The call returns the
// bytes when the memory is free again. If the budget is exhausted, calls wait in FIFO order. So a
// fast worker cannot crowd out another worker.
//
//   if (budget.Take(bytes, [call] { call->Read(); }) == 0) Read();
//   ...
//   budget.GiveBack(bytes);
//
// Thread-safe. The thread that returns bytes runs the continuations that waited for them, without
// holding the lock. If a continuation calls GiveBack() itself, the GiveBack() that runs this
// continuation runs the newly served continuations after it. So the stack stays flat however long
// the queue is. Invariant: at most `capacity` bytes are held, except that a request above
// `capacity` is served while the budget holds 0 bytes.
class ByteBudget {
 public:
  using Continuation = std::function<void()>;
  // Identifies a queued request; 0 means not queued.
  using Waiting = uint64_t;

  explicit ByteBudget(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  // Returns 0 if the bytes were reserved at once; `granted` does not run then. Otherwise queues the
  // request and runs `granted` once the bytes are reserved, perhaps before Take() returns.
  Waiting Take(int64_t bytes, Continuation granted);

  // Reserves the bytes if they are free and the queue is empty. Never queues.
  bool TryTake(int64_t bytes);

  // Returns bytes to the budget. REQUIRES: the bytes were reserved before.
  void GiveBack(int64_t bytes);

  // Removes a request from the queue. Returns true if the request was still queued; the
  // continuation then never runs. Returns false if the request was already served; the caller must
  // then give the bytes back as usual.
  bool Leave(Waiting waiting);

  // Returns true if the queue is not empty.
  bool waits() const;

  int64_t capacity() const { return capacity_; }
  int64_t held() const;
  // Returns the highest value of held() so far.
  int64_t high_water() const;

 private:
  struct Place {
    Waiting name;
    int64_t bytes;
    Continuation granted;
  };

  // Continuations due on one thread. Lives on that thread's stack.
  struct Runner {
    std::thread::id thread;
    std::deque<Continuation> due;
  };

  bool Fits(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Hold(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reserves bytes for as many requests at the head of the queue as fit, and returns the
  // continuations.
  std::vector<Continuation> Serve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs the continuations, or appends them to a Run() that is active further up this thread's
  // stack.
  void Run(std::vector<Continuation> served) ABSL_LOCKS_EXCLUDED(mutex_);

  const int64_t capacity_;
  mutable Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t high_water_ ABSL_GUARDED_BY(mutex_) = 0;
  Waiting last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Place> line_ ABSL_GUARDED_BY(mutex_);
  std::vector<Runner*> runners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
