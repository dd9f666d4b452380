#pragma once

#include <optional>
#include <vector>

#include "common/block_map.h"
#include "common/ids.h"
#include "worker/device/copy_shares.h"

namespace torchps {

// Tracks the shares of a step's gradient whose work is completely queued on the device, so that
// they can be copied down. Thread-compatible. Borrows both arguments.
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

  // The trained blocks precede the averaged blocks.
  BlockId trained_blocks() const { return trained_blocks_; }

 private:
  const CopyShares& shares_;
  const BlockId blocks_;
  const BlockId trained_blocks_;
  std::vector<bool> is_left_;  // by block
  std::vector<int> missing_;   // by share: blocks that are not final
};

}  // namespace torchps
