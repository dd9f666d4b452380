#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/parked/byte_budget.h"
#include "server/store/block_journal.h"

namespace torchps {

// Decides when one call may read or send the next frame: when the job's journal can record the
// frame, and the server's budget covers the frame's bytes. A call that waits for either does not
// hold a thread.
//
// Thread-safe, but a call may ask again only after its last continuation ran. Owned by the call,
// and each continuation must keep the call alive. The budget and the journal outlive this object.
// Invariant: each Await() ends in exactly one way: the continuation runs, Await() returns false, or
// Cancel() returns true.
class FrameAdmission {
 public:
  using Continuation = std::function<void()>;

  explicit FrameAdmission(ByteBudget* budget) : budget_(budget) {}

  // Takes `bytes` from the budget and runs `go` when the frame is admitted. `go` runs before this
  // returns, or later on the thread that freed the space. `journal` is null if the frame needs no
  // record. Returns false if the call was cancelled; `go` does not run then.
  bool Await(BlockJournal* journal, int64_t bytes, Continuation go);

  // Returns the bytes that Await() took. Called when the frame's memory is free again.
  void Release(int64_t bytes) { budget_->GiveBack(bytes); }

  // Must be called when the call ends. Returns true if the call was waiting; the continuation does
  // not run.
  bool Cancel();

 private:
  void AwaitBytes(int64_t bytes, const Continuation& go);
  void Enter(int64_t bytes, const Continuation& go);
  // Begins a wait in the next queue. Returns the wait's number, or 0 if the call was cancelled.
  uint64_t BeginWait();
  // Makes `leave` the way to end wait `number`, unless that wait is over.
  void StandInLine(uint64_t number, Continuation leave);

  ByteBudget* const budget_;
  Mutex mutex_;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // Number of the last wait. The queue may end a wait before StandInLine() stores how to leave it.
  uint64_t wait_ ABSL_GUARDED_BY(mutex_) = 0;
  Continuation leave_ ABSL_GUARDED_BY(mutex_);
};

// Admits a frame that must not wait. Returns true if the journal can record the frame and `bytes`
// were reserved from `budget`. In that case the caller must release them.
bool TryEnter(BlockJournal* journal, ByteBudget* budget, int64_t bytes);

}  // namespace torchps
