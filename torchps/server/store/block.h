#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/block_map.h"
#include "torchps/common/cpu/aligned_array.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/common/missed_steps.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/server/store/push_gate.h"
#include "torchps/transport/shared_layout.h"

namespace torchps {

// Memory for the values of one block. Pulls borrow it to send the values without a copy.
//
// Thread-compatible, but loans may end on any thread. Loans keep the buffer alive. Invariant: the
// owner does not write to a lent buffer (Block continues in another buffer).
class ValueBuffer {
 public:
  // The values are uninitialized.
  // REQUIRES: `size` > 0.
  explicit ValueBuffer(size_t size);
  ValueBuffer(const ValueBuffer&) = delete;
  ValueBuffer& operator=(const ValueBuffer&) = delete;

  // Returns the values without a copy. The loan ends when gRPC frees the slice.
  static grpc::Slice Lend(const std::shared_ptr<ValueBuffer>& buffer);

  // False if all loans have ended and their reads are complete.
  bool lent() const { return loans_.load(std::memory_order_acquire) > 0; }
  absl::Span<float> values() { return absl::MakeSpan(values_.get(), size_); }

 private:
  class Loan;

  const size_t size_;
  const AlignedMemory<float> values_;
  std::atomic<int> loans_{0};
};

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

  // Moves the values to `shared_values`, which are borrowed and have the length of the range.
  // Readers in other processes use `shared_head` to check the values they read.
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
  // The optimizer's arrays, each with the length of the range. Empty for an averaged block.
  std::vector<std::vector<float>> slots ABSL_GUARDED_BY(mutex);
  // The result of the last LookWhetherFinite(). Gradients are always finite, but an optimizer may
  // overflow.
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

// Reusable memory for copies of blocks. It is allocated and touched once, because copies are made
// under the block's lock and must not wait for page faults there. Thread-compatible.
class BlockCopy {
 public:
  // Reserves memory for this many elements, optimizer slots and ledger entries. Copying a larger
  // block grows it.
  BlockCopy(int64_t elements, size_t slots, size_t ledger) {
    memory_.resize(elements * (slots + 1));
    ledger_.reserve(ledger);
  }
  BlockCopy(const BlockCopy&) = delete;
  BlockCopy& operator=(const BlockCopy&) = delete;

  // The last copy. Borrows this object's memory.
  const BlockImage& image() const { return image_; }

  // True if the copied values and optimizer slots are finite.
  bool IsFinite() const {
    return FirstNonFinite(image_.values) < 0 &&
           std::all_of(image_.slots.begin(), image_.slots.end(),
                       [](absl::Span<const float> slot) { return FirstNonFinite(slot) < 0; });
  }

 private:
  friend class StoreSnapshot;

  std::vector<float> memory_;
  std::vector<LedgerEntry> ledger_;
  std::vector<MissedRun> missed_;
  BlockImage image_;
};

}  // namespace torchps
