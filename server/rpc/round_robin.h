#pragma once

#include <deque>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/rpc/call_tag.h"

namespace torchps {

// Round-robin queue of calls that are ready to send. gRPC returns finished operations before it
// polls the sockets. So a stream with writes that finish at once would continue until its socket is
// full, and other ready streams would starve. Instead, a call with another block to send enters
// this queue. The polling thread polls the completion queue a few times before it serves the first
// call, so that other calls can enter as well.
//
// Thread-safe. The caller of Next() runs a turn, which is the tag's Proceed(true). Invariants:
// turns follow the order of entering. A waiting call is due after kPolls polls or one long event,
// so neither events nor turns can crowd out the other.
class RoundRobin {
 public:
  // A poll reports at most one socket event and costs 1 us. Already 2 polls make 16 pulls share
  // evenly. Sending 1 MiB in a turn costs 300 us.
  static constexpr int kPolls = 4;

  // Appends `tag` to the queue. Does not wake a thread. REQUIRES: `tag` is not queued, and lives
  // until its turn. The calling thread checks the queue before it sleeps.
  void Enter(CompletionTag* tag);

  // Removes and returns the tag to run next. Returns null if the queue is empty or the completion
  // queue must be polled first.
  CompletionTag* Next();

  // Records one poll of the completion queue; `was_long` if it returned a long event.
  void Polled(bool was_long);

  // Returns true if calls are queued. The completion queue may then be polled, but not waited on.
  bool waits() const;

 private:
  mutable Mutex mutex_;
  std::deque<CompletionTag*> line_ ABSL_GUARDED_BY(mutex_);
  // Polls since the last turn, or since the queue was last empty.
  int polls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
