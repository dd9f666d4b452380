#pragma once

#include <cstdint>
#include <vector>

#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/ids.h"

namespace torchps {

// Consecutive blocks.
struct BlockRun {
  BlockId begin = 0;
  BlockId end = 0;
};

// Groups a model's blocks into shares. Small neighbours are copied together, because each copy
// between host and device costs about 10 us beyond the transfer. Each share contains either trained
// or averaged blocks.
//
// Immutable, so thread-safe.
class CopyShares {
 public:
  // The bus transfers 1 MiB in 20 to 40 us.
  static constexpr int64_t kLeastBytes = 1 << 20;

  // Makes shares of at least `least_bytes`. The last trained share and the last averaged share may
  // be smaller.
  explicit CopyShares(const BlockMap& map, int64_t least_bytes = kLeastBytes);

  const std::vector<BlockRun>& shares() const { return shares_; }
  size_t share_of(BlockId block) const { return share_of_[block]; }

 private:
  std::vector<BlockRun> shares_;
  std::vector<size_t> share_of_;  // by block
};

// Returns the longest runs of wanted blocks within `blocks`.
std::vector<BlockRun> GetRuns(const std::vector<bool>& wanted, BlockRun blocks);

// Returns the run's elements in the flat vector.
ElementRun GetElements(const BlockMap& map, BlockRun run);

}  // namespace torchps
