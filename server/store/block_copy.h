#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/block_image.h"
#include "common/cpu/finite_check.h"

namespace torchps {

// Memory for a copy of one block after the other. It is taken, and touched, once: a copy is made
// under the block's lock, and should not have to wait for page faults there. Thread-compatible.
class BlockCopy {
 public:
  // Has room for blocks of so many elements and optimizer slots, and for so many ledger entries;
  // copying a larger one takes more.
  BlockCopy(int64_t elements, size_t slots, size_t ledger) {
    memory_.resize(elements * (slots + 1));
    ledger_.reserve(ledger);
  }
  BlockCopy(const BlockCopy&) = delete;
  BlockCopy& operator=(const BlockCopy&) = delete;

  // What was copied last. Borrows this object's memory.
  const BlockImage& image() const { return image_; }

  // Whether all of its values and optimizer slots are finite.
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
