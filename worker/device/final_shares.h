#pragma once

#include <optional>
#include <vector>

#include "common/block_map.h"
#include "common/ids.h"
#include "worker/device/copy_shares.h"

namespace torchps {

// Which shares of a step's gradient the device was given to compute as a whole, so that they may
// come down. Thread-compatible; borrows both.
class FinalShares {
 public:
  FinalShares(const BlockMap* block_map, const CopyShares* shares);

  // Of the next step no block is final.
  void Begin();
  // `block` is final; at most once a step. Its share, if that is final by this.
  std::optional<BlockRun> Add(BlockId block);
  // The blocks of shares that are not, as runs of trained or of averaged ones: they lie apart on
  // the device.
  std::vector<BlockRun> LeftOfTrained() const;
  std::vector<BlockRun> LeftOfAveraged() const;

  // The trained blocks come first.
  BlockId trained_blocks() const { return trained_blocks_; }

 private:
  const CopyShares& shares_;
  const BlockId blocks_;
  const BlockId trained_blocks_;
  std::vector<bool> is_left_;  // by block
  std::vector<int> missing_;   // by share: blocks that are not final
};

}  // namespace torchps
