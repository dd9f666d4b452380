#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {

// Scales a push by its number of samples, in a job with pushes of different sizes.
struct SampleScale {
  enum class Of {
    kNothing,   // a push is not scaled
    kRate,      // for a push of n samples, the learning rate is scaled by n / whole_step
    kGradient,  // for a push of n samples, the gradient is scaled by n / whole_step
  };
  Of of = Of::kNothing;
  // Above 0, except for kNothing.
  int64_t whole_step = 0;
  // True if whole_step counts the samples of all slots, so that the slots' parts add up to 1. False
  // if it counts the samples of one slot.
  bool is_of_all = false;
};

// Returns the scale for a job with EACH_PUSH. With local steps, `whole_step` is the number of
// samples in one push by each worker. So one push by each worker has about the effect of one SYNC
// step, which averages these pushes. SGD scales the gradient, so that momentum scales with it.
// Other optimizers, such as Adam, divide by the gradient's size and would cancel the factor, so
// they scale the learning rate. Without local steps, the learning rate is scaled, and only if
// pushes may differ in size (training.balance, training.global_batch).
// REQUIRES: `job` is normalized and complete.
SampleScale GetSampleScale(const JobSpec& job);

// Sums the gradients that a block collects for the next update, for their weighted mean.
//
// Each slot contributes at most once. A slot's ledger entry changes when its gradient is added, but
// reaches the disk only with the update. LedgerWithout() returns the ledger that matches the
// block's values. An element that only some gradients lack counts as zero in those gradients. An
// element that each gradient lacks stays absent, as in torch's DDP with find_unused_parameters.
// Gradients are summed in the order of arrival, so two runs may differ by rounding.
//
// Not thread-safe: guarded by the block's lock. Needs as much memory as the block's values once a
// gradient has arrived.
class GradientSum {
 public:
  // Adds a push. `entry` is the slot's ledger entry before the push. Withheld pushes contribute
  // without weight.
  // REQUIRES: the slot did not contribute yet; `payload` fits the block.
  void Add(const Block& block, const PushHeader& header, const FramePayload& payload,
           const LedgerEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  bool empty() const { return contributors_.empty(); }
  bool Has(SlotId slot) const;
  const std::vector<SlotId>& contributors() const { return contributors_; }
  // Sum of mean_weight() over the gradients that were not withheld.
  double weight() const { return weight_; }

  // Divides the sum by weight() and returns the update with elements, absent elements, contributors
  // and progress. The progress is the contributors' lowest, but never below an earlier update's.
  // Borrows from this object until Clear().
  // REQUIRES: weight() > 0; not called since Clear().
  BlockRecord TakeMean(const Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  // Drops the gradients and begins the next update.
  void Clear();

  // Returns the block's ledger with the contributors' entries from before they contributed.
  std::vector<LedgerEntry> LedgerWithout(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

 private:
  void AddElements(const Block& block, const PushHeader& header, const FramePayload& payload);

  std::vector<float> sum_;
  double weight_ = 0;
  // Elements that are absent in all gradients of the sum that were not withheld.
  ElementRuns absent_;
  uint32_t progress_ = 0;
  // Highest progress of the updates so far. Old samples must not lower it.
  uint32_t latest_progress_ = 0;
  std::vector<SlotId> contributors_;
  // In the order of contributors_.
  std::vector<LedgerEntry> entries_before_;
};

}  // namespace torchps
