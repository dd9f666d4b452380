#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/block_image.h"
#include "common/cpu/finite_check.h"

namespace torchps {

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
