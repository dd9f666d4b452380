#pragma once

#include <atomic>
#include <vector>

#include "torchps/server/store/block_updater.h"
#include "torchps/server/store/gradient_sum.h"
#include "torchps/server/store/push_gate.h"
#include "torchps/server/store/push_policy.h"

namespace torchps {

// Implements asynchronous SGD: applies each push when it arrives, as the LagContract
// (torchps/proto/job.proto) allows. Averaged blocks (batch-norm statistics) move a part of the way
// to the pushed values. The part is 1 / (number of live slots), or 1 if `scale` counts the samples
// of all slots, times the push's factors. So one step by each slot moves them to about the mean.
class AsyncPush final : public PushPolicy {
 public:
  // `scale` weighs a push by its samples. `progress_slack` is how far a push's progress may be
  // behind the latest push, in units of 2^-32 of the job (LatestProgress). `updater` outlives this
  // object.
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
  PushGate gate_;
  const SampleScale scale_;
  LatestProgress progress_;
  const BlockUpdater* const updater_;
  std::atomic<int> live_slots_{1};
};

}  // namespace torchps
