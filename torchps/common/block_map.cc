#include "torchps/common/block_map.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// Each block costs some hundred bytes of state. More blocks than this mean that the block size is
// too small.
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
  // Small models use shorter blocks, so that each server owns at least one block.
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
  int64_t begin = 0;
  bool averaged = false;
  for (const Segment& segment : layout.segments()) {
    if (!segment.starts_block && segment.averaged == averaged) continue;
    cut(begin, segment.offset, averaged);
    begin = segment.offset;
    averaged = segment.averaged;
  }
  cut(begin, layout.size(), averaged);
  return map;
}

absl::StatusOr<BlockMap> BlockMap::Part(int64_t trained, int64_t trained_length, int64_t averaged,
                                        int64_t averaged_length) const {
  BlockMap part;
  part.owned_.resize(owned_.size());
  part.all_owned_ = owned_;
  int64_t placed = 0;
  const auto take = [&](int64_t begin, int64_t length, bool is_averaged) {
    for (const BlockRange& block : blocks_) {
      const bool is_within = block.offset >= begin && block.offset + block.length <= begin + length;
      if (block.averaged != is_averaged || !is_within) continue;
      BlockRange own = block;
      own.id = static_cast<BlockId>(part.blocks_.size());
      own.offset = placed;
      placed += block.length;
      part.owned_[own.server].push_back(own.id);
      part.whole_ids_.push_back(block.id);
      part.blocks_.push_back(own);
    }
  };
  take(trained, trained_length, /*is_averaged=*/false);
  take(averaged, averaged_length, /*is_averaged=*/true);
  if (placed != trained_length + averaged_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a part of ", trained_length, " trained and ", averaged_length,
                     " averaged elements begins or ends within a block"));
  }
  return part;
}

std::optional<BlockId> BlockMap::Find(BlockId whole_id) const {
  if (is_whole()) {
    return whole_id < blocks_.size() ? std::make_optional(whole_id) : std::nullopt;
  }
  const auto found = std::lower_bound(whole_ids_.begin(), whole_ids_.end(), whole_id);
  if (found == whole_ids_.end() || *found != whole_id) return std::nullopt;
  return static_cast<BlockId>(found - whole_ids_.begin());
}

}  // namespace torchps
