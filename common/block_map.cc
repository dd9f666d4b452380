#include "common/block_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// Per-block state costs some hundred bytes; beyond this many the block size is a mistake.
constexpr int64_t kMaxBlocks = int64_t{1} << 24;

}  // namespace

absl::StatusOr<BlockMap> BlockMap::Create(const ModelLayout& layout, int64_t block_bytes,
                                          int servers) {
  constexpr int64_t kElementBytes = sizeof(float);
  if (block_bytes <= 0 || block_bytes % kElementBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_bytes is ", block_bytes, "; expected a positive multiple of 4"));
  }
  if (servers <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job needs at least one server, got ", servers));
  }
  if (layout.trained_size() < servers) {
    return absl::InvalidArgumentError(absl::StrCat("a model of ", layout.trained_size(),
                                                   " elements cannot be spread over ", servers,
                                                   " servers"));
  }
  // A small model is cut finer, so that no server is left without a block.
  const int64_t block_length =
      std::min(block_bytes / kElementBytes, layout.trained_size() / servers);
  if (layout.size() / block_length >= kMaxBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_bytes ", block_bytes, " cuts ", layout.size(),
                     " elements into more than 2^24 blocks; make blocks larger"));
  }

  BlockMap map;
  map.owned_.resize(servers);
  const auto cut = [&](int64_t begin, int64_t end, bool averaged) {
    for (int64_t offset = begin; offset < end; offset += block_length) {
      BlockRange block;
      block.id = static_cast<BlockId>(map.blocks_.size());
      block.offset = offset;
      block.length = std::min(block_length, end - offset);
      block.averaged = averaged;
      block.server = static_cast<int>(block.id % servers);
      map.owned_[block.server].push_back(block.id);
      map.blocks_.push_back(block);
    }
  };
  cut(0, layout.trained_size(), /*averaged=*/false);
  cut(layout.trained_size(), layout.size(), /*averaged=*/true);
  return map;
}

}  // namespace torchps
