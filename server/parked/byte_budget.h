#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace torchps {

// How many bytes of frames a server may hold at a time, for all its calls together. A call takes
// its share before it asks gRPC for a frame, or copies a block to send, and gives it back when the
// memory is free again. A call that finds too little left stands in line: first come, first served,
// so no worker can crowd out another one, however fast it asks.
//
//   if (budget.Take(bytes, [call] { call->Read(); }) == 0) Read();
//   ...
//   budget.GiveBack(bytes);
//
// Thread-safe. A continuation runs on the thread that gave back what it was waiting for, under no
// lock; one that gives back in turn returns before those run that waited for that, so that a long
// line takes no stack. Invariant: no more than `capacity` is held, but for a share that is larger
// than that, which is held alone.
class ByteBudget {
 public:
  using Continuation = std::function<void()>;
  // Names a place in the line; 0 is none.
  using Waiting = uint64_t;

  explicit ByteBudget(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  // 0: the share is taken, and `granted` will not run. Otherwise `granted` runs when it has been
  // taken, perhaps before this returns.
  Waiting Take(int64_t bytes, Continuation granted);

  // Takes the share if it is there at once and nobody stands in line. Leaves no place in the line.
  bool TryTake(int64_t bytes);

  // REQUIRES: taken before.
  void GiveBack(int64_t bytes);

  // True: it stood in line and no longer does; its continuation will not run. False: it has been
  // served, so the share is to be given back as ever.
  bool Leave(Waiting waiting);

  // Whether anybody stands in line.
  bool waits() const;

  int64_t capacity() const { return capacity_; }
  int64_t held() const;
  // The most that was ever held.
  int64_t high_water() const;

 private:
  struct Place {
    Waiting name;
    int64_t bytes;
    Continuation granted;
  };

  // A thread that runs continuations; its own stack holds this.
  struct Runner {
    std::thread::id thread;
    std::deque<Continuation> due;
  };

  bool Fits(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Hold(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes for those at the head of the line what is there for them.
  std::vector<Continuation> Serve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs them, or leaves them to the Run() that this thread is in.
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
