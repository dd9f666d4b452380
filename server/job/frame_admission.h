#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/parked/byte_budget.h"
#include "server/store/block_journal.h"

namespace torchps {

// The answer to one call's question "may I read or send my next frame now?": yes, once the job's
// journal has room for what the frame brings, and the server's budget has taken the frame's bytes.
// A call that stands in line for either holds no thread.
//
// Thread-safe, but a call asks again only after its last continuation has run. Owned by the call,
// which each continuation keeps alive. The budget and the journal outlive it.
// Invariant: of each Await() exactly one comes true: its continuation runs, it returned false, or
// Cancel() returned true.
class FrameAdmission {
 public:
  using Continuation = std::function<void()>;

  explicit FrameAdmission(ByteBudget* budget) : budget_(budget) {}

  // Runs `go` when the frame may come and `bytes` are taken for it: before this returns, or later
  // on the thread that made room. `journal`: null where the frame brings nothing to record. False:
  // the call was cancelled, and `go` will not run.
  bool Await(BlockJournal* journal, int64_t bytes, Continuation go);

  // Gives back what an Await() took, when the frame's memory is free again.
  void Release(int64_t bytes) { budget_->GiveBack(bytes); }

  // The call has ended. True: it stood in line and no longer does; its continuation will not run.
  bool Cancel();

 private:
  void AwaitBytes(int64_t bytes, const Continuation& go);
  void Enter(int64_t bytes, const Continuation& go);
  // Begins to wait in another line; its number, 0 if the call was cancelled.
  uint64_t BeginWait();
  // The wait `number` can be ended by `leave`, unless it is over.
  void StandInLine(uint64_t number, Continuation leave);

  ByteBudget* const budget_;
  Mutex mutex_;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // How many lines it has stood in. The line may have served it before it tells its place there.
  uint64_t wait_ ABSL_GUARDED_BY(mutex_) = 0;
  Continuation leave_ ABSL_GUARDED_BY(mutex_);
};

// For a frame that is not to stand in any line: whether the journal has room for what it brings and
// `budget` has taken its bytes, which are then to be given back there.
bool TryEnter(BlockJournal* journal, ByteBudget* budget, int64_t bytes);

}  // namespace torchps
