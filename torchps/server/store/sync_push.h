#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/server/store/block_updater.h"
#include "torchps/server/store/gradient_sum.h"
#include "torchps/server/store/push_policy.h"

namespace torchps {

// Implements synchronous SGD: each block collects the gradients of step t from the live slots and
// applies their mean, weighted by samples, once. This is round t. With b backup workers, a round
// needs all live slots but b (Chen et al. 2016, "Revisiting distributed synchronous SGD"); later
// gradients are LATE and not applied. After that quorum, the round waits up to a grace time for the
// missing slots. It does not wait for a slot that is behind: a slot without any gradient for the
// previous round, not even a late one. This slot still computes on old values.
//
// Round t waits for the live slots with a clock below t. If a slot leaves or dies, the round stops
// waiting for it, but keeps a gradient that arrived. Servers finish a round at different times. A
// slot that enters while servers are at different rounds starts at the highest clock, and does not
// push to the lower rounds that other servers are still collecting. If all live slots are past a
// round, or pushed only withheld blocks, the round is skipped without a change of values. Costs one
// more array per block.
class SyncPush final : public PushPolicy {
 public:
  // Block ids are below `blocks`; this server owns `owned` blocks. The grace is `grace_part` times
  // the time from the start of a round to its quorum. `updater` outlives this object, and so does
  // `clock`, which may be null if the grace is 0.
  SyncPush(size_t blocks, size_t owned, int backup_workers, const BlockUpdater* updater,
           double grace_part, const Clock* clock);

  absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                    const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;
  void SetLive(const std::vector<LiveSlot>& live) override;
  void Reconsider(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;
  absl::Duration next_due() const override;
  bool TakeDue() override;
  bool IsSettled(SlotId, Step step) const override { return step <= completed_rounds(); }
  int64_t completed_rounds() const override;
  std::vector<LedgerEntry> SettledLedger(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override;
  // Restored blocks may be some rounds apart. A block that is behind skips the rounds that the
  // foremost block has finished. It does not skip the last of these rounds, because gradients for
  // it may still arrive.
  void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;

 private:
  // The round that a block is collecting; guarded by the block's lock.
  struct Round {
    GradientSum sum;
    // End of the previous round, or creation of this object.
    absl::Duration began = absl::ZeroDuration();
    // Time of the quorum; infinite while more slots are missing than there are backup workers.
    absl::Duration quorum_at = absl::InfiniteDuration();
  };

  // Applies or skips the rounds that do not wait for slots any more.
  void FinishRounds(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // Raises the block to `version` without changing the values.
  void PassOver(Block* block, Version version, absl::Span<const SlotId> contributors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // The lowest clock of a live slot; 0 if there is none.
  Step SlowestClock() const;
  // Resets `round` to collect the next round.
  void BeginNext(Round* round);
  // True if no gradient of the slot, in time or late, has arrived for the block's last finished
  // round.
  static bool IsBehind(const Block& block, const LiveSlot& live)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  bool has_grace() const { return grace_part_ > 0; }
  // True if the block's current round must end now. Otherwise updates due_ if the round has a
  // quorum.
  bool IsComplete(const Block& block, Round* round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  const int backup_workers_;
  const size_t owned_;
  const BlockUpdater* const updater_;
  const double grace_part_;
  const Clock* const clock_;
  std::vector<Round> rounds_;  // by BlockId

  // Total of finished rounds over the blocks. Each block is at most one round ahead of another
  // (Push refuses step t+1 until each block finished t), so the total shows how many rounds are
  // complete.
  std::atomic<int64_t> blocks_finished_{0};

  mutable Mutex mutex_;
  std::vector<LiveSlot> live_ ABSL_GUARDED_BY(mutex_);
  // The earliest end of a grace time that IsComplete() found since TakeDue().
  absl::Duration due_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
};

}  // namespace torchps
