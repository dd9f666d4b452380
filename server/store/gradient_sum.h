#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "common/ledger_entry.h"
#include "server/store/block.h"
#include "server/store/block_journal.h"
#include "wire/frame_codec.h"

namespace torchps {

// The gradients that a block collects for its next update, added up for their weighted mean.
//
// A slot contributes at most once. Its ledger entry changes when it contributes, but goes to disk
// only with the update: LedgerWithout() gives the ledger as the block's values know it. An element
// that some gradients lack counts as zero in those; an element that all lack stays absent, as in
// torch's DDP with find_unused_parameters. Gradients are summed in the order of arrival, so two
// runs differ by float rounding.
//
// Not thread-safe: guarded by the block's lock. Takes as much memory as the block's values once a
// gradient has come.
class GradientSum {
 public:
  // Adds a push, whose slot has `entry` in the ledger before it. A withheld push contributes
  // without weight. REQUIRES: the slot has not contributed; `payload` fits the block.
  void Add(const Block& block, const PushHeader& header, const FramePayload& payload,
           const LedgerEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  bool empty() const { return contributors_.empty(); }
  bool Has(SlotId slot) const;
  const std::vector<SlotId>& contributors() const { return contributors_; }
  // The sum of mean_weight() of all gradients that were not withheld: their samples, or what of
  // these counts.
  double weight() const { return weight_; }

  // Divides the sum by its weight and returns the update: elements, absent elements, contributors
  // and progress, which is the least of them, but never below an earlier update's. Borrows from
  // this object until Clear(). REQUIRES: weight() > 0, first call.
  BlockRecord TakeMean(const Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  // Forgets the gradients: the next update begins.
  void Clear();

  // The block's ledger, with the contributors' entries as they were before they contributed.
  std::vector<LedgerEntry> LedgerWithout(const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

 private:
  void AddElements(const Block& block, const PushHeader& header, const FramePayload& payload);

  std::vector<float> sum_;
  double weight_ = 0;
  // Elements that all gradients with a weight lack.
  ElementRuns absent_;
  uint32_t progress_ = 0;
  // Of all updates so far: a slot that kept its samples for long does not take the job back.
  uint32_t latest_progress_ = 0;
  std::vector<SlotId> contributors_;
  // By contributor.
  std::vector<LedgerEntry> entries_before_;
};

}  // namespace torchps
