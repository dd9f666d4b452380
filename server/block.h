#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/shared_block.h"
#include "server/push_gate.h"

namespace torchps {

// One block with all that belongs to it: values, optimizer slots, version and ledger change
// together under one lock, and so can never disagree. Workers on this machine may read the values
// without that lock, so values and version change only within a BlockChange.
struct Block {
  // `block_values` and `block_head` are borrowed (ValueArena); as long as the range.
  Block(const BlockRange& block_range, absl::Span<float> block_values, SharedBlock* block_head)
      : range(block_range), values(block_values), head(block_head) {}

  // The slot's entry, made on first use. REQUIRES: 0 <= slot < kMaxSlots.
  LedgerEntry& Ledger(SlotId slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (ledger.size() <= static_cast<size_t>(slot)) ledger.resize(slot + 1);
    return ledger[slot];
  }

  const BlockRange range;

  Mutex mutex;
  bool initialized ABSL_GUARDED_BY(mutex) = false;
  Version version ABSL_GUARDED_BY(mutex) = 0;
  const absl::Span<float> values ABSL_GUARDED_BY(mutex);
  SharedBlock* const head ABSL_PT_GUARDED_BY(mutex);
  // The optimizer's arrays, each as long as `values`; none for an averaged block.
  std::vector<std::vector<float>> slots ABSL_GUARDED_BY(mutex);
  std::vector<LedgerEntry> ledger ABSL_GUARDED_BY(mutex);
};

// Spans a change of a block's values or version: whoever reads the block in shared memory
// meanwhile notices, and tells the new version from then on. The block's lock is held all the time.
class BlockChange {
 public:
  explicit BlockChange(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) : block_(block) {
    block_->head->BeginChange();
  }
  // The analysis cannot see that the constructor's lock is still held.
  ~BlockChange() ABSL_NO_THREAD_SAFETY_ANALYSIS { block_->head->EndChange(block_->version); }
  BlockChange(const BlockChange&) = delete;
  BlockChange& operator=(const BlockChange&) = delete;

 private:
  Block* const block_;
};

}  // namespace torchps
