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

// When a pushed gradient meets its block: on arrival (AsyncPush) or together with those of the
// other slots (SyncPush). Thread-safe; per-block state is guarded by the block's lock, which the
// caller holds.
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

  // When something becomes due though nothing comes; infinite: nothing will. Then TakeDue() tells,
  // once, that it is, and the caller runs Reconsider on every block.
  virtual absl::Duration next_due() const { return absl::InfiniteDuration(); }
  virtual bool TakeDue() { return false; }

  // Steps that every block here has finished for all slots: the floor of SYNC. -1 where steps are
  // not taken together.
  virtual int64_t completed_rounds() const = 0;

  // The block's ledger as far as it goes with the block's values: without what has a verdict and is
  // still to be applied with its round.
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
