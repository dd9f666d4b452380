#pragma once

#include <atomic>
#include <vector>

#include "server/store/block_updater.h"
#include "server/store/latest_progress.h"
#include "server/store/push_policy.h"
#include "server/store/sample_scale.h"

namespace torchps {

// Asynchronous stochastic gradient descent: a push is applied when it arrives, under the lag
// contract. Averaged blocks move by 1 / (live slots) of the way to each pushed value, or by its
// part of a step of all slots where the scale is of that, so that over one step of all slots they
// move by about their mean.
class AsyncPush final : public PushPolicy {
 public:
  // `scale`: what a push's samples do to it. `progress_slack`: how far behind the latest push a
  // push may count (LatestProgress). `updater` outlives this object.
  AsyncPush(const LagContract& contract, const SampleScale& scale, uint32_t progress_slack,
            const BlockUpdater* updater)
      : gate_(contract), scale_(scale), progress_(progress_slack), updater_(updater) {}

  absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                    const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;
  void SetLive(const std::vector<LiveSlot>& live) override;
  void Reconsider(Block*) override {}
  bool IsSettled(SlotId, Step) const override { return true; }
  int64_t completed_rounds() const override { return -1; }
  void TakeRestored(Block* block, Version highest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) override;

 private:
  const PushGate gate_;
  const SampleScale scale_;
  LatestProgress progress_;
  const BlockUpdater* const updater_;
  std::atomic<int> live_slots_{1};
  // Workers may have computed on values that are gone. Set before anything is pushed.
  bool restored_ = false;
};

}  // namespace torchps
