#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/types.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/push_gate.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {

// Describes a live slot, which will push each step above `clock`.
struct LiveSlot {
  SlotId slot = 0;
  Step clock = 0;
};

// Number of block updates on this server, and of updates made before a whole batch arrived.
struct UpdateCounts {
  uint64_t made = 0;
  uint64_t early = 0;
};

// Turns pushed gradients into block updates: each push alone (AsyncPush), summed to a whole batch
// (BatchPush), or summed over the live slots (SyncPush). Thread-safe; the block's lock guards
// per-block state, and the caller holds it.
class PushPolicy {
 public:
  virtual ~PushPolicy() = default;

  // Decides on one frame. Applies an accepted gradient now, or adds it to the sum for the next
  // update. The ledger contains the decision when this returns. Errors as PushGate::Judge.
  // INVALID_ARGUMENT: no slot can be at this step. UNAVAILABLE: the frame is too early; push again.
  // REQUIRES: payload and header.absent have been checked. The payload is finite and has the length
  // of the block, or is empty if the block is withheld or entirely absent.
  virtual absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                            const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // Sets the live slots. Not called if a clock rises only because the slot pushed. After each call,
  // the caller runs Reconsider on each block.
  virtual void SetLive(const std::vector<LiveSlot>& live) = 0;

  // Makes the updates of this block that are due by now, for example because of SetLive().
  virtual void Reconsider(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // Called when the slot's push ended and the slot waits for it to settle. `is_whole` is true if
  // the push contained all blocks of this server. `usual_step` is the slot's usual step time. The
  // caller then runs Reconsider on each block.
  virtual void AwaitUpdate(SlotId slot, absl::Duration usual_step, bool is_whole) {
    (void)slot;
    (void)usual_step;
    (void)is_whole;
  }
  // Called when the slot begins a pull, so it will compute another gradient.
  virtual void PullBegan(SlotId slot) { (void)slot; }
  // True if each block here applied or refused its part of the slot's push of `step`, as far as
  // parts have arrived. The server acknowledges the push only then.
  virtual bool IsSettled(SlotId slot, Step step) const = 0;

  // Returns the time at which an update becomes due without a push; infinite if there is none. The
  // first call of TakeDue() after that time returns true, and the caller then runs Reconsider on
  // each block.
  virtual absl::Duration next_due() const { return absl::InfiniteDuration(); }
  virtual bool TakeDue() { return false; }

  // Returns the number of rounds that all blocks here have finished. In SYNC this is the min clock.
  // Returns -1 with other update rules.
  virtual int64_t completed_rounds() const = 0;

  // Counts of this process if pushes are collected in batches (BatchPush); otherwise zero.
  virtual UpdateCounts update_counts() const { return {}; }

  // Returns the ledger that matches the block's values, without pushes that have a verdict but are
  // not applied yet.
  virtual std::vector<LedgerEntry> SettledLedger(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    return block.ledger;
  }

  // Called for each block after a restore, before the first push. `highest` is the highest version
  // of the restored blocks.
  virtual void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // Sets the journal that records each block change; may be null. Must be called before the first
  // push.
  void SetJournal(BlockJournal* journal) { journal_ = journal; }

 protected:
  void Report(const Block& block, const BlockRecord& record) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    if (journal_ != nullptr) journal_->Record(block, record);
  }

 private:
  BlockJournal* journal_ = nullptr;
};

}  // namespace torchps
