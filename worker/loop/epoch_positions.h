#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace torchps {

// Maps positions in an epoch to sample indices (common/sample_order.h). Computes an epoch's order
// on first use and caches the latest order. Thread-compatible.
class EpochPositions {
 public:
  // Without `shuffle`, the position is the sample index.
  EpochPositions(uint64_t seed, int64_t samples, bool shuffle = true)
      : seed_(seed), samples_(samples), shuffle_(shuffle) {}

  // Returns the samples at positions [begin, end) of `epoch`, valid until the next call. Returns an
  // empty span if the range is outside the epoch.
  absl::Span<const int64_t> Samples(int epoch, int64_t begin, int64_t end);

 private:
  const uint64_t seed_;
  const int64_t samples_;
  const bool shuffle_;
  int epoch_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace torchps
