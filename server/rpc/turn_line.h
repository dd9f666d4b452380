#pragma once

#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/rpc/completion_tag.h"

namespace torchps {

// In which order a queue's thread does what calls could go on with at once, and what the completion
// queue has for it. gRPC hands out what has ended before it looks at what its sockets have to say.
// So a stream whose every write ends at once would go on until its socket is full, and streams that
// meanwhile could send too would not even be noticed. A call that has something further to send
// stands in line for it instead, with one place each; the thread asks the queue a few times before
// the first in line has its turn, so that who else can send stands in line too. Who has come to the
// front goes on for a stint of kStintBytes, unless it cannot, before it is another one's turn:
// where sixteen alternate block by block, each finds its memory pushed out of the caches by the
// others (bench/results/tuning.md).
//
// Thread-safe. A turn is the tag's Proceed(true), which the caller of Next() runs.
// Invariants: turns are in the order of entering, but for those that go on. One that waits is due
// after kQuestions questions or one event that took long, so neither events nor turns can crowd out
// the other.
class TurnLine {
 public:
  // A question is answered with one socket's news, or with nothing: 1 us. With 2 of them 16 pulls
  // share evenly already; a turn of 1 MiB takes 300 us.
  static constexpr int kQuestions = 4;
  // What a stream sends before it enters again.
  static constexpr int64_t kStintBytes = int64_t{8} << 20;

  // REQUIRES: `tag` is not in line, and lives until its turn. The caller is a thread that will look
  // at the line before it sleeps; nobody is woken.
  void Enter(CompletionTag* tag);

  // As Enter, but in front of all others, since its stint is not over. REQUIRES: has had a turn
  // since it entered, and has sent less than kStintBytes since.
  void GoOn(CompletionTag* tag);

  // Takes out the one whose turn it is. Null: nobody waits, or the queue is to be asked first.
  CompletionTag* Next();

  // The queue was asked; `was_long` if its answer is an event that takes long.
  void Asked(bool was_long);

  // Somebody waits, so that the queue may be asked but not slept at.
  bool waits() const;

 private:
  mutable Mutex mutex_;
  std::deque<CompletionTag*> line_ ABSL_GUARDED_BY(mutex_);
  // Since the last turn, and since anybody waits.
  int questions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
