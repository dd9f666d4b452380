#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ledger_entry.h"
#include "common/missed_steps.h"
#include "common/types.h"

namespace torchps {

// The complete state of a block at one moment, as a checkpoint stores it. Borrows the arrays.
struct BlockImage {
  BlockRange range;
  Version version = 0;
  absl::Span<const float> values;
  // The optimizer's arrays, each as long as `values`; empty for an averaged block.
  std::vector<absl::Span<const float>> slots;
  // Indexed by slot. Shorter than the slot count if the last slots did not push.
  absl::Span<const LedgerEntry> ledger;
  // Gradients counted in `version` that did not update some elements.
  absl::Span<const MissedRun> missed;
};

// Holds a BlockImage together with the arrays. Reuse one buffer for many blocks: the arrays keep
// their capacity, so later reads do not cause page faults.
struct BlockBuffer {
  BlockRange range;
  Version version = 0;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;  // optimizer arrays
  std::vector<LedgerEntry> ledger;
  std::vector<MissedRun> missed;

  // Returns an image that borrows from this buffer.
  BlockImage image() const {
    BlockImage image;
    image.range = range;
    image.version = version;
    image.values = values;
    image.slots.assign(slots.begin(), slots.end());
    image.ledger = ledger;
    image.missed = missed;
    return image;
  }
};

}  // namespace torchps
