#pragma once

#include <cstdint>
#include <vector>

#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/ids.h"

namespace torchps {

// A run of blocks that lie one behind the other.
struct BlockRun {
  BlockId begin = 0;
  BlockId end = 0;
};

// A model's blocks in shares: small neighbours are copied together, for a copy between host and
// device has a price of its own (some 10 us), beside what its bytes take. No share has both trained
// and averaged blocks.
//
// Immutable, so thread-safe.
class CopyShares {
 public:
  // 1 MiB is 20 to 40 us on a bus.
  static constexpr int64_t kLeastBytes = 1 << 20;

  // Each share but the last trained and the last averaged one has at least `least_bytes`.
  explicit CopyShares(const BlockMap& map, int64_t least_bytes = kLeastBytes);

  const std::vector<BlockRun>& shares() const { return shares_; }
  size_t share_of(BlockId block) const { return share_of_[block]; }

 private:
  std::vector<BlockRun> shares_;
  std::vector<size_t> share_of_;  // by block
};

// The runs of those blocks among `blocks` that `wanted` has, as long as they can be.
std::vector<BlockRun> GetRuns(const std::vector<bool>& wanted, BlockRun blocks);

// The elements of a run in the flat vector.
ElementRun GetElements(const BlockMap& map, BlockRun run);

}  // namespace torchps
