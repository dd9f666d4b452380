#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "server/push_gate.h"

namespace torchps {

// One block with all that belongs to it: values, optimizer slots, version and ledger change
// together under one lock, and so can never disagree.
struct Block {
  explicit Block(const BlockRange& block_range) : range(block_range) {}

  // The slot's entry, made on first use. REQUIRES: 0 <= slot < kMaxSlots.
  LedgerEntry& Ledger(SlotId slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (ledger.size() <= static_cast<size_t>(slot)) ledger.resize(slot + 1);
    return ledger[slot];
  }

  const BlockRange range;

  Mutex mutex;
  bool initialized ABSL_GUARDED_BY(mutex) = false;
  Version version ABSL_GUARDED_BY(mutex) = 0;
  std::vector<float> values ABSL_GUARDED_BY(mutex);
  // The optimizer's arrays, each as long as `values`; none for an averaged block.
  std::vector<std::vector<float>> slots ABSL_GUARDED_BY(mutex);
  std::vector<LedgerEntry> ledger ABSL_GUARDED_BY(mutex);
};

}  // namespace torchps
