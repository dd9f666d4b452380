#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"

namespace torchps {

// Consecutive blocks.
struct BlockRun {
  BlockId begin = 0;
  BlockId end = 0;
};

// Groups a model's blocks into shares. Small neighbours are copied together, because each copy
// between host and device costs about 10 us beyond the transfer. Each share contains only trained
// or only averaged blocks.
//
// Immutable, so thread-safe.
class CopyShares {
 public:
  // The default minimum size of a share, in bytes. The bus transfers 1 MiB in 20 to 40 us, so the
  // 10 us of the copy matter less.
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

// Returns the blocks within `blocks` for which `wanted` is true, as the longest possible runs.
std::vector<BlockRun> GetRuns(const std::vector<bool>& wanted, BlockRun blocks);

// Returns the run's elements in the flat vector.
ElementRun GetElements(const BlockMap& map, BlockRun run);

// Tracks the final blocks of a step's gradient: those for which all device work is queued. Once all
// blocks of a share are final, the share can be copied to the host. Thread-compatible. Borrows both
// arguments.
class FinalShares {
 public:
  FinalShares(const BlockMap* block_map, const CopyShares* shares);

  // Begins the next step, without final blocks.
  void Begin();
  // Marks `block` as final; at most once a step. Returns the block's share if this completes it.
  std::optional<BlockRun> Add(BlockId block);
  // Return the blocks of incomplete shares as runs. Trained and averaged blocks are separate,
  // because they are not adjacent on the device.
  std::vector<BlockRun> LeftOfTrained() const;
  std::vector<BlockRun> LeftOfAveraged() const;

  // Returns the number of trained blocks, which precede the averaged blocks.
  BlockId trained_blocks() const { return trained_blocks_; }

 private:
  const CopyShares& shares_;
  const BlockId blocks_;
  const BlockId trained_blocks_;
  std::vector<bool> is_left_;  // by block
  std::vector<int> missing_;   // by share: blocks that are not final
};

}  // namespace torchps
