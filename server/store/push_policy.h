#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "server/store/block.h"
#include "server/store/block_journal.h"
#include "server/store/push_gate.h"
#include "wire/frame_codec.h"

namespace torchps {

// A slot that counts, and the step after which it does so: it pushes each step above `clock`.
struct LiveSlot {
  SlotId slot = 0;
  Step clock = 0;
};

// Updates of blocks that a server has made, and how many of these before a whole batch was in.
struct UpdateCounts {
  uint64_t made = 0;
  uint64_t early = 0;
};

// How pushed gradients become updates of their block: each alone on arrival (AsyncPush), summed up
// to a whole batch (BatchPush), or one of every slot (SyncPush). Thread-safe; per-block state is
// guarded by the block's lock, which the caller holds.
class PushPolicy {
 public:
  virtual ~PushPolicy() = default;

  // Judges one frame and applies it, or keeps it for its round. The decision is in the ledger when
  // this returns. Errors as PushGate::Judge; INVALID_ARGUMENT: a step that no slot can be at;
  // UNAVAILABLE: not yet, push again.
  // REQUIRES: payload and header.absent have been checked: as many elements as the block, all
  // finite, or none where the block is withheld or all of it is absent.
  virtual absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                            const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // These slots count from now on. A clock that only rises with the slot's own pushes need not be
  // told again. Afterwards the caller runs Reconsider on every block.
  virtual void SetLive(const std::vector<LiveSlot>& live) = 0;

  // Does what the last change of live slots has made due on this block.
  virtual void Reconsider(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // The slot's push has come to its end, with all of its blocks here if `is_whole`, and the slot
  // waits until it is settled. `usual_step`: how long its steps take. Afterwards the caller runs
  // Reconsider on every block.
  virtual void AwaitUpdate(SlotId slot, absl::Duration usual_step, bool is_whole) {
    (void)slot;
    (void)usual_step;
    (void)is_whole;
  }
  // The slot has begun to pull: it is about to compute another gradient.
  virtual void PullBegan(SlotId slot) { (void)slot; }
  // Whether every block here has applied or refused its part of the slot's push of `step`, as far
  // as that part has come. A push is acknowledged only then.
  virtual bool IsSettled(SlotId slot, Step step) const = 0;

  // When something becomes due though nothing comes; infinite: nothing will. Then TakeDue() tells,
  // once, that it is, and the caller runs Reconsider on every block.
  virtual absl::Duration next_due() const { return absl::InfiniteDuration(); }
  virtual bool TakeDue() { return false; }

  // Steps that every block here has finished for all slots: the floor of SYNC. -1 where steps are
  // not taken together.
  virtual int64_t completed_rounds() const = 0;

  // Of this process, where pushes are collected (BatchPush); else none.
  virtual UpdateCounts update_counts() const { return {}; }

  // The block's ledger as the block's values know it: without pushes that have a verdict and are
  // still to be applied.
  virtual std::vector<LedgerEntry> SettledLedger(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    return block.ledger;
  }

  // The block has been restored from an earlier life of this server, in which the foremost block
  // was at version `highest`. To be called for every block, before anything is pushed.
  virtual void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // Tells `journal` of every change of a block from now on; null: none. To be called before
  // anything is pushed.
  void SetJournal(BlockJournal* journal) { journal_ = journal; }

 protected:
  void Tell(const Block& block, const BlockRecord& record) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    if (journal_ != nullptr) journal_->Record(block, record);
  }

 private:
  BlockJournal* journal_ = nullptr;
};

}  // namespace torchps
