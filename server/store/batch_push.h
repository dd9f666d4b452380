#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/store/block_updater.h"
#include "server/store/gradient_sum.h"
#include "server/store/push_policy.h"

namespace torchps {

// Asynchronous stochastic gradient descent by whole batches. A push is merged into its block's sum
// as soon as it arrives, and the block is updated once when the samples of a whole batch are in,
// whoever computed them. So the optimizer's moments see what they see in one process, and no update
// waits for a particular slot.
//
// A block is updated
//   - when the sum holds a whole batch, or all of it but a small slack, since shares that were
//     planned anew meanwhile may add up to a sample or two less;
//   - when every live slot has contributed, or cannot contribute since its push has come to its end
//     and it has not pulled since: it waits for another block, and would be waited for in turn;
//   - early, when a slot that has contributed has waited for `patience` of its own usual steps: at
//     the k-th such time if the sum holds at least the 2^k-th part of a batch. The gradient is then
//     multiplied by the part that has come, as if the missing samples had a gradient of zero.
//
// Staleness: a gradient computed on values more than `bound` updates old is refused
// (REJECTED_STALE), so no update contains an older one. Gradients one to `bound` updates old count
// in the update that is being collected.
//
// A push is settled when every block here has applied or refused it; only then may it be
// acknowledged. What is collected is in no checkpoint and no log: a crash forgets it together with
// its ledger entries, and the worker repeats the push. Costs one more array per block.
class BatchPush final : public PushPolicy {
 public:
  struct Options {
    // Samples of a whole batch. With `per_slot`, of each live slot's part.
    int64_t batch_samples = 1;
    bool per_slot = false;
    // In updates of the block; -1: no bound.
    int64_t bound = 1;
    // Above 0.
    double patience = 1;
  };

  // Blocks are numbered by BlockId below `blocks`. `updater` and `clock` outlive this object.
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
  // What a block has collected for its next update; guarded by the block's lock.
  struct Collected {
    GradientSum sum;
    // Samples towards a whole batch: the shares of the contributors.
    int64_t fill = 0;
    // No more samples come after these.
    bool ends_job = false;
  };

  // A slot some of whose gradients are collected and not applied.
  struct Unsettled {
    int blocks = 0;
    // `patience` usual steps; zero: its push has not come to its end yet.
    absl::Duration turn = absl::ZeroDuration();
    // When the next turn is over.
    absl::Duration due = absl::InfiniteDuration();
    int turns = 0;
  };

  // The part of a whole batch that an update made now would count as, above 0 to 1; nullopt: no
  // update is due.
  std::optional<double> PartWhenDue(const Collected& collected) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Updates the block if that is due.
  void Update(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // Whether nothing more of the slot can come before an update that it waits for.
  bool CannotContribute(SlotId slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Their gradients on one block are applied.
  void Settle(const std::vector<SlotId>& contributors) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const PushGate gate_;
  const BlockUpdater* const updater_;
  const Clock* const clock_;
  std::vector<Collected> collected_;  // by BlockId
  // Workers may have computed on values that are gone. Set before anything is pushed.
  bool restored_ = false;
  std::atomic<uint64_t> updates_{0};
  std::atomic<uint64_t> early_updates_{0};

  mutable Mutex mutex_;
  std::vector<SlotId> live_ ABSL_GUARDED_BY(mutex_);
  std::map<SlotId, Unsettled> unsettled_ ABSL_GUARDED_BY(mutex_);
  // When the slot's push came to its end; none for a slot that has pulled since.
  std::map<SlotId, absl::Duration> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
