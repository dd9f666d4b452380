#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "torchps/common/block_map.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/server/job/apply_helper.h"
#include "torchps/server/parked/byte_budget.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/push_segments.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {

// Splits frames that carry no values but refer to a run of blocks in a worker's shared memory. Each
// block is pushed as if it had arrived in a separate frame. Two threads push a long run.
//
// Thread-safe. Borrows the segments and the map.
class SharedFrames {
 public:
  // May be called on two threads at the same time.
  using PushBlock =
      absl::FunctionRef<absl::Status(const PushHeader& header, const FramePayload& payload)>;

  // `server_index` is the index of this server in the map.
  SharedFrames(const PushSegments* segments, const BlockMap* map, int server_index)
      : segments_(segments), map_(map), server_index_(server_index) {}

  // Pushes the blocks of `segment` that the frame refers to. If `copies` is true, pushes a copy of
  // each block, so that two readers see the same values while the worker writes. INVALID_ARGUMENT:
  // the frame refers to a buffer or block that the segment or this server does not hold; no block
  // was pushed. Otherwise returns the first error of `push`; other blocks may have been pushed.
  absl::Status Push(const PushHeader& header, const SharedSegment& segment, bool copies,
                    PushBlock push);

 private:
  const PushSegments* const segments_;
  const BlockMap* const map_;
  const int server_index_;
  ApplyHelper helper_;
};

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

  // Gives the bytes that Await() took back to the budget. Called when the frame's memory is free
  // again.
  void Release(int64_t bytes) { budget_->GiveBack(bytes); }

  // Must be called when the call ends. Returns true if the call was waiting; the continuation then
  // does not run.
  bool Cancel();

 private:
  void AwaitBytes(int64_t bytes, const Continuation& go);
  void Enter(int64_t bytes, const Continuation& go);
  // Begins a wait for the journal or for the budget. Returns the wait's number, or 0 if the call
  // was cancelled.
  uint64_t BeginWait();
  // Stores `leave`, which removes wait `number` from its queue, unless that wait is over.
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
