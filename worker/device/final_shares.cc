#include "worker/device/final_shares.h"

namespace torchps {
namespace {

BlockId TrainedBlocks(const BlockMap& map) {
  auto trained = static_cast<BlockId>(map.blocks().size());
  while (trained > 0 && map.blocks()[trained - 1].averaged) --trained;
  return trained;
}

}  // namespace

FinalShares::FinalShares(const BlockMap* block_map, const CopyShares* shares)
    : shares_(*shares),
      blocks_(static_cast<BlockId>(block_map->blocks().size())),
      trained_blocks_(TrainedBlocks(*block_map)) {}

void FinalShares::Begin() {
  is_left_.assign(blocks_, true);
  missing_.clear();
  for (const BlockRun& share : shares_.shares()) {
    missing_.push_back(static_cast<int>(share.end - share.begin));
  }
}

std::optional<BlockRun> FinalShares::Add(BlockId block) {
  const size_t index = shares_.share_of(block);
  if (--missing_[index] > 0) return std::nullopt;
  const BlockRun share = shares_.shares()[index];
  for (BlockId id = share.begin; id < share.end; ++id) is_left_[id] = false;
  return share;
}

std::vector<BlockRun> FinalShares::LeftOfTrained() const {
  return GetRuns(is_left_, {0, trained_blocks_});
}

std::vector<BlockRun> FinalShares::LeftOfAveraged() const {
  return GetRuns(is_left_, {trained_blocks_, blocks_});
}

}  // namespace torchps
