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

// Holds one block: values, optimizer slots, version and ledger. They change together under one
// lock, so they always agree. Pulls and workers on the same machine read the values without this
// lock. So values and version may change only within a BlockChange.
struct Block {
  explicit Block(const BlockRange& block_range) : range(block_range) {}

  // Returns the slot's entry for writing. Creates it on first use, with the entries of lower slots,
  // so call this only for a slot that pushes.
  // REQUIRES: 0 <= slot < kMaxSlots.
  LedgerEntry& Ledger(SlotId slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (ledger.size() <= static_cast<size_t>(slot)) ledger.resize(slot + 1);
    return ledger[slot];
  }
  // Returns a copy of the slot's entry, or an empty entry if the slot did not push.
  // REQUIRES: 0 <= slot.
  LedgerEntry MakeEntry(SlotId slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return static_cast<size_t>(slot) < ledger.size() ? ledger[slot] : LedgerEntry();
  }

  // Moves the values to `shared_values` (borrowed, as long as the range). Readers in other
  // processes use `shared_head` to check the values they read.
  void MoveTo(absl::Span<float> shared_values, SharedBlock* shared_head)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Raises the version without applying a gradient. The optimizer's step count does not change.
  // REQUIRES: `higher` is above the current version.
  void PassOver(Version higher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Sets `finite`: true if the values and the optimizer's arrays are finite.
  void LookWhetherFinite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const BlockRange range;

  Mutex mutex;
  bool initialized ABSL_GUARDED_BY(mutex) = false;
  Version version ABSL_GUARDED_BY(mutex) = 0;
  // Empty until the first change.
  absl::Span<float> values ABSL_GUARDED_BY(mutex);
  // Owns the values before they move to shared memory; otherwise null.
  std::shared_ptr<ValueBuffer> buffer ABSL_GUARDED_BY(mutex);
  // Null until other processes may read the values.
  SharedBlock* head ABSL_GUARDED_BY(mutex) = nullptr;
  // The optimizer's arrays, each as long as the range; empty for an averaged block.
  std::vector<std::vector<float>> slots ABSL_GUARDED_BY(mutex);
  // The result of the last check. Gradients are always finite, but an optimizer may overflow.
  bool finite ABSL_GUARDED_BY(mutex) = true;
  // Steps without a gradient for some elements; the optimizer's step count leaves them out.
  MissedSteps missed ABSL_GUARDED_BY(mutex);
  std::vector<LedgerEntry> ledger ABSL_GUARDED_BY(mutex);
};

// Spans a change to a block's values or version, under the block's lock. If a pull is sending the
// values, the change applies to a copy. Workers that read the block in shared memory detect the
// change, and then see the new version.
class BlockChange {
 public:
  explicit BlockChange(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  // The thread safety analysis does not see that the lock is still held.
  ~BlockChange() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  BlockChange(const BlockChange&) = delete;
  BlockChange& operator=(const BlockChange&) = delete;

 private:
  Block* const block_;
};

}  // namespace torchps
