#pragma once

#include <deque>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/rpc/call_tag.h"

namespace torchps {

// A round-robin queue of the calls that could send at once. gRPC hands out operations that have
// ended before it looks at its sockets. So a stream whose every write ends at once would go on
// until its socket is full, and streams that could send meanwhile would not even be noticed. A call
// with another block to send enters this line instead. The polling thread polls the completion
// queue a few times before the first in line has its turn, so that the others enter too.
//
// Thread-safe. A turn is the tag's Proceed(true), which the caller of Next() runs.
// Invariants: turns are in the order of entering. One that waits is due after kPolls polls or one
// event that took long, so neither events nor turns can crowd out the other.
class RoundRobin {
 public:
  // A poll brings one socket's news, or nothing, in 1 us. With 2 of them 16 pulls share evenly
  // already; a turn of 1 MiB takes 300 us.
  static constexpr int kPolls = 4;

  // REQUIRES: `tag` is not in line, and lives until its turn. The caller is a thread that will look
  // at the line before it sleeps; Enter wakes no other.
  void Enter(CompletionTag* tag);

  // Takes out the tag whose turn it is. Null: the line is empty, or the queue is to be polled
  // first.
  CompletionTag* Next();

  // The queue was polled; `was_long` if it brought an event that takes long.
  void Polled(bool was_long);

  // The line is not empty, so that the queue may be polled but not slept at.
  bool waits() const;

 private:
  mutable Mutex mutex_;
  std::deque<CompletionTag*> line_ ABSL_GUARDED_BY(mutex_);
  // Since the last turn, and since the line was empty.
  int polls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
