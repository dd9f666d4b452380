#pragma once

#include <vector>

#include "checkpoint/block_image.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/missed_steps.h"

namespace torchps {

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
