#include "worker/device/copy_shares.h"

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

}  // namespace torchps
