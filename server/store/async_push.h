#pragma once

#include <atomic>
#include <vector>

#include "server/store/block_updater.h"
#include "server/store/latest_progress.h"
#include "server/store/push_policy.h"

namespace torchps {

// Asynchronous stochastic gradient descent: a push is applied when it arrives, under the lag
// contract. Averaged blocks move by 1 / (live slots) of the way to each pushed value, so that over
// one step of all slots they move by about their mean.
class AsyncPush final : public PushPolicy {
 public:
  // `whole_step`: where slots take batches of different sizes (training.balance), the samples for
  // which the learning rate is meant; a push of n has that rate times n / whole_step. 0: each push
  // has the rate. `progress_slack`: how far behind the latest push a push may count
  // (LatestProgress). `updater` outlives this object.
  AsyncPush(const LagContract& contract, int64_t whole_step, uint32_t progress_slack,
            const BlockUpdater* updater)
      : gate_(contract), whole_step_(whole_step), progress_(progress_slack), updater_(updater) {}

  absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                    const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;
  void SetLive(const std::vector<LiveSlot>& live) override;
  void Reconsider(Block*) override {}
  int64_t completed_rounds() const override { return -1; }
  void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;

 private:
  const PushGate gate_;
  const int64_t whole_step_;
  LatestProgress progress_;
  const BlockUpdater* const updater_;
  std::atomic<int> live_slots_{1};
  // Workers may have computed on values that are gone. Set before anything is pushed.
  bool restored_ = false;
};

}  // namespace torchps
