#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/server/store/block_updater.h"
#include "torchps/server/store/gradient_sum.h"
#include "torchps/server/store/push_policy.h"

namespace torchps {

// Implements asynchronous SGD with whole batches. Adds each push to the block's sum when it
// arrives, and updates the block once per batch, from any mix of slots. So the optimizer sees the
// same batches as in a single process, and updates do not wait for a particular slot.
//
// The block is updated
//   - when the sum contains a whole batch, or lacks at most 1/16 of one slot's equal share, or one
//     sample. The coordinator may change the slots' shares during a batch, and they may then add up
//     to one or two samples less;
//   - when each live slot has contributed or cannot contribute. A slot cannot contribute between
//     the end of its push and its next pull: it waits for an update of another block, so waiting
//     for this slot could be a deadlock;
//   - early, when a contributing slot has waited k times `patience` usual steps, and the sum
//     contains at least a 2^-k part of a batch. The gradient is then multiplied by the part that
//     arrived, as if the missing samples had a gradient of zero.
//
// Staleness: a gradient computed on values more than `bound` updates old is refused
// (REJECTED_STALE). Gradients that are one to `bound` updates old become part of the current
// update.
//
// A push is settled when each block here applied or refused it, and may be acknowledged only then.
// Checkpoints and logs do not contain gradients that wait in a sum, nor their ledger entries. A
// crash loses both, and the worker repeats the push. Costs one more array per block.
class BatchPush final : public PushPolicy {
 public:
  struct Options {
    // Samples in a whole batch, or in each live slot's part of it if `per_slot`.
    int64_t batch_samples = 1;
    bool per_slot = false;
    // In updates of the block; -1 means unbounded.
    int64_t bound = 1;
    // In usual steps of a slot, above 0.
    double patience = 1;
  };

  // Block ids are below `blocks`. `updater` and `clock` outlive this object.
  BatchPush(size_t blocks, const Options& options, const BlockUpdater* updater, const Clock* clock);

  absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                    const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;
  void SetLive(const std::vector<LiveSlot>& live) override;
  void Reconsider(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;
  void AwaitUpdate(SlotId slot, absl::Duration usual_step, bool is_whole) override;
  void PullBegan(SlotId slot) override;
  bool IsSettled(SlotId slot, Step step) const override;
  absl::Duration next_due() const override;
  bool TakeDue() override;
  int64_t completed_rounds() const override { return -1; }
  UpdateCounts update_counts() const override;
  std::vector<LedgerEntry> SettledLedger(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override;
  void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;

 private:
  // Gradients collected for a block's next update; guarded by the block's lock.
  struct Collected {
    GradientSum sum;
    // Samples towards a whole batch: the sum of the contributors' shares.
    int64_t fill = 0;
    // True if these are the last samples of the job.
    bool ends_job = false;
  };

  // State of a slot with collected gradients that are not applied yet.
  struct Unsettled {
    int blocks = 0;
    // Length of one turn of waiting: `patience` times the usual step. Zero until the push ends.
    absl::Duration turn = absl::ZeroDuration();
    // The end of the current turn.
    absl::Duration due = absl::InfiniteDuration();
    int turns = 0;
  };

  // Returns the part of a whole batch that an update now would contain, in (0, 1]; nullopt if an
  // update is not due.
  std::optional<double> PartWhenDue(const Collected& collected) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Updates the block if an update is due.
  void Update(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // True if the slot cannot push again before an update that it waits for.
  bool CannotContribute(SlotId slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records that the contributors' gradients on one block are applied.
  void Settle(const std::vector<SlotId>& contributors) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  PushGate gate_;
  const BlockUpdater* const updater_;
  const Clock* const clock_;
  std::vector<Collected> collected_;  // by BlockId
  std::atomic<uint64_t> updates_{0};
  std::atomic<uint64_t> early_updates_{0};

  mutable Mutex mutex_;
  std::vector<SlotId> live_ ABSL_GUARDED_BY(mutex_);
  std::map<SlotId, Unsettled> unsettled_ ABSL_GUARDED_BY(mutex_);
  // When each slot's last push ended. Erased when the slot pulls.
  std::map<SlotId, absl::Duration> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
