#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/ledger_entry.h"
#include "common/missed_steps.h"

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

}  // namespace torchps
