#pragma once

#include <vector>

#include "checkpoint/block_image.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/missed_steps.h"

namespace torchps {

// A BlockImage that owns its arrays. Meant to be used again and again: its arrays keep their room,
// and with it pages that have been touched.
struct BlockBuffer {
  BlockRange range;
  Version version = 0;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;  // the optimizer's arrays
  std::vector<LedgerEntry> ledger;
  std::vector<MissedRun> missed;

  // Borrows from this buffer.
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
