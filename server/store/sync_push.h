#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/store/block_updater.h"
#include "server/store/gradient_sum.h"
#include "server/store/push_policy.h"

namespace torchps {

// Synchronous stochastic gradient descent: each block collects the gradients of step t of the live
// slots, and applies their mean, weighted by samples, once. That is round t. With b backup workers
// a round waits for all live slots but b (Chen et al. 2016, "Revisiting distributed synchronous
// SGD"); what comes later is LATE and not applied. A round that has so many waits for the others
// for a while, the grace, and ends before it has passed if all have come. It does not wait for a
// slot that is behind: one from which nothing has come for the round before either, in time or
// late, since such a slot still computes on values of a round that is over.
//
// Round t waits for the live slots whose clock is below t: a slot that dies or leaves is no longer
// waited for, but a gradient it gave counts. Servers finish a round one after the other, so a slot
// that enters between two of them starts, by the later clock, behind the round that the other is
// still collecting, and will not push to it. A round to which no slot is left to push, though live
// slots are behind it, or to which all have only withheld blocks, is passed over without a change
// of values.Costs one more array per
// block.
class SyncPush final : public PushPolicy {
 public:
  // Blocks are numbered by BlockId below `blocks`; `owned` of them are on this server. The grace
  // is `grace_part` times the time from a round's beginning to its quorum. `updater` and `clock`,
  // which a grace above 0 needs, outlive this object.
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
  // Blocks were saved one after the other and may be rounds apart: those far behind pass over the
  // rounds that the foremost one has finished, but for its last, which may be under way here.
  void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;

 private:
  // The round that a block is collecting; guarded by the block's lock.
  struct Round {
    GradientSum sum;
    // When the round before ended, or this process made the block.
    absl::Duration began = absl::ZeroDuration();
    // When no more than the backup workers were missing; infinite: more are.
    absl::Duration quorum_at = absl::InfiniteDuration();
  };

  // Applies or passes over the rounds that wait for no slot any more.
  void FinishRounds(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // The block goes on to `version` with its values as they are.
  void PassOver(Block* block, Version version, absl::Span<const SlotId> contributors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // The lowest clock of a live slot; 0 where there is none.
  Step SlowestClock() const;
  // The round is over: what it collects from now on is the next one's.
  void BeginNext(Round* round);
  // Nothing of the slot has come for the block's last round, neither in time nor late.
  static bool IsBehind(const Block& block, const LiveSlot& live)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  bool has_grace() const { return grace_part_ > 0; }
  // Whether the block's present round is to end now; notes when it will where it has a quorum.
  bool IsComplete(const Block& block, Round* round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  const int backup_workers_;
  const size_t owned_;
  const BlockUpdater* const updater_;
  const double grace_part_;
  const Clock* const clock_;
  std::vector<Round> rounds_;  // by BlockId

  // Blocks finish rounds one by one but never get two ahead of each other (Push refuses step t+1
  // before every block here has finished t), so the total tells how many rounds all have finished.
  std::atomic<int64_t> blocks_finished_{0};

  mutable Mutex mutex_;
  std::vector<LiveSlot> live_ ABSL_GUARDED_BY(mutex_);
  // The earliest end of a grace since TakeDue().
  absl::Duration due_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
};

}  // namespace torchps
