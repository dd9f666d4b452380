#include "torchps/worker/device/final_shares.h"

namespace torchps {

CopyShares::CopyShares(const BlockMap& map, int64_t least_bytes) {
  const auto least = least_bytes / static_cast<int64_t>(sizeof(float));
  int64_t length = 0;  // of the last share
  for (const BlockRange& block : map.blocks()) {
    const bool goes_on =
        !shares_.empty() && length < least && map.blocks()[block.id - 1].averaged == block.averaged;
    if (!goes_on) {
      shares_.push_back({block.id, block.id});
      length = 0;
    }
    shares_.back().end = block.id + 1;
    length += block.length;
    share_of_.push_back(shares_.size() - 1);
  }
}

std::vector<BlockRun> GetRuns(const std::vector<bool>& wanted, BlockRun blocks) {
  std::vector<BlockRun> runs;
  for (BlockId block = blocks.begin; block < blocks.end; ++block) {
    if (!wanted[block]) continue;
    if (runs.empty() || runs.back().end != block) runs.push_back({block, block});
    runs.back().end = block + 1;
  }
  return runs;
}

ElementRun GetElements(const BlockMap& map, BlockRun run) {
  const BlockRange& last = map.blocks()[run.end - 1];
  return {map.blocks()[run.begin].offset, last.offset + last.length};
}

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
