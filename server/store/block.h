#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/missed_steps.h"
#include "common/mutex.h"
#include "server/store/push_gate.h"
#include "server/store/value_buffer.h"
#include "shm/shared_block.h"

namespace torchps {

// One block with all that belongs to it: values, optimizer slots, version and ledger change
// together under one lock, and so can never disagree. A pull that sends the values borrows them,
// and workers on this machine may read them in shared memory, both without that lock: so values and
// version change only within a BlockChange.
struct Block {
  explicit Block(const BlockRange& block_range) : range(block_range) {}

  // The slot's entry, to write to; made on first use, with those of all lower slots, so only for a
  // slot that pushes. REQUIRES: 0 <= slot < kMaxSlots.
  LedgerEntry& Ledger(SlotId slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (ledger.size() <= static_cast<size_t>(slot)) ledger.resize(slot + 1);
    return ledger[slot];
  }
  // The same to read: an empty one for a slot that has not pushed. REQUIRES: 0 <= slot.
  LedgerEntry MakeEntry(SlotId slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return static_cast<size_t>(slot) < ledger.size() ? ledger[slot] : LedgerEntry();
  }

  // From now on the values lie at `shared_values` (borrowed, as long as the range), where
  // `shared_head` tells readers in other processes what they have read.
  void MoveTo(absl::Span<float> shared_values, SharedBlock* shared_head)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // The version rises to this one, and nothing was applied: an optimizer's own count of steps stays
  // what it is. REQUIRES: it is a higher one.
  void PassOver(Version higher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Notes in `finite` whether all values and all of the optimizer's arrays are.
  void LookWhetherFinite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const BlockRange range;

  Mutex mutex;
  bool initialized ABSL_GUARDED_BY(mutex) = false;
  Version version ABSL_GUARDED_BY(mutex) = 0;
  // Empty until the first change.
  absl::Span<float> values ABSL_GUARDED_BY(mutex);
  // Where the values lie as long as no other process reads them; null before and after.
  std::shared_ptr<ValueBuffer> buffer ABSL_GUARDED_BY(mutex);
  // Null until other processes may read the values.
  SharedBlock* head ABSL_GUARDED_BY(mutex) = nullptr;
  // The optimizer's arrays, each as long as the range; none for an averaged block.
  std::vector<std::vector<float>> slots ABSL_GUARDED_BY(mutex);
  // As of the last look. Gradients are finite all; what an optimizer makes of them need not be.
  bool finite ABSL_GUARDED_BY(mutex) = true;
  // Gradients that had nothing for some elements: an optimizer's step counts without them.
  MissedSteps missed ABSL_GUARDED_BY(mutex);
  std::vector<LedgerEntry> ledger ABSL_GUARDED_BY(mutex);
};

// Spans a change of a block's values or version; the block's lock is held all the time. Values that
// a pull is sending are left as they are: the block goes on in a copy. A worker that reads the
// block in shared memory meanwhile notices, and tells the new version from then on.
class BlockChange {
 public:
  explicit BlockChange(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // The analysis cannot see that the constructor's lock is still held.
  ~BlockChange() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  BlockChange(const BlockChange&) = delete;
  BlockChange& operator=(const BlockChange&) = delete;

 private:
  Block* const block_;
};

}  // namespace torchps
