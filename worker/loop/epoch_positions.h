#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace torchps {

// Which samples the positions of an epoch stand for (common/sample_order.h). Computes an epoch's
// order when it is first asked for and keeps the latest one. Thread-compatible.
class EpochPositions {
 public:
  // Without `shuffle` a position is the sample's index.
  EpochPositions(uint64_t seed, int64_t samples, bool shuffle = true)
      : seed_(seed), samples_(samples), shuffle_(shuffle) {}

  // The samples at positions [begin, end) of epoch `epoch`; valid until the next call. Empty where
  // the range does not lie within the epoch.
  absl::Span<const int64_t> Samples(int epoch, int64_t begin, int64_t end);

 private:
  const uint64_t seed_;
  const int64_t samples_;
  const bool shuffle_;
  int epoch_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace torchps
