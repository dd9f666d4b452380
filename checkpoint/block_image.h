#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/ledger_entry.h"
#include "common/missed_steps.h"

namespace torchps {

// Everything that a block is, as it was at one moment: what a checkpoint keeps of it. Borrows its
// arrays.
struct BlockImage {
  BlockRange range;
  Version version = 0;
  absl::Span<const float> values;
  // The optimizer's arrays, each as long as `values`; none for an averaged block.
  std::vector<absl::Span<const float>> slots;
  // By slot; shorter where the last slots have pushed nothing.
  absl::Span<const LedgerEntry> ledger;
  // What some elements have missed of the gradients that `version` counts.
  absl::Span<const MissedRun> missed;
};

}  // namespace torchps
