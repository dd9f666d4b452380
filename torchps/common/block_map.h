#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"

namespace torchps {

// One block: a contiguous run of the flat vector. Blocks are the unit of transfer, locking,
// versioning and placement.
struct BlockRange {
  BlockId id = 0;
  int64_t offset = 0;  // first element in the flat vector
  int64_t length = 0;  // elements, at least 1
  bool averaged = false;
  int server = 0;  // the server that owns this block
};

// Divides the flat vector into blocks and assigns each block to a server. A block never crosses the
// border between trained and averaged elements or the start of a model stage
// (Segment::starts_block). The last block before such a border, and the last block of the vector,
// may be shorter. Block b belongs to server b mod S, which spreads neighbouring blocks evenly.
//
// Immutable and therefore thread-safe; copyable. Workers and servers compute identical maps from
// the same layout, block size and number of servers, so the map is never sent.
class BlockMap {
 public:
  BlockMap() = default;

  // Returns INVALID_ARGUMENT if `block_bytes` is not a positive multiple of 4, `servers` is below 1
  // or above the number of trained elements, or the map would contain more than 2^24 blocks.
  static absl::StatusOr<BlockMap> Create(const ModelLayout& layout, int64_t block_bytes,
                                         int servers);

  // Returns the map for a process that holds only a part of the vector: `trained_length` trained
  // elements from `trained` on and `averaged_length` averaged elements from `averaged` on. Both
  // offsets count in the whole vector. In the part's vector the trained elements precede the
  // averaged elements. The returned map numbers its blocks within the part; each block keeps the
  // server that the whole map assigns. Returns INVALID_ARGUMENT if a run begins or ends within a
  // block. REQUIRES: is_whole().
  absl::StatusOr<BlockMap> Part(int64_t trained, int64_t trained_length, int64_t averaged,
                                int64_t averaged_length) const;

  // Returns false if Part() created this map.
  bool is_whole() const { return whole_ids_.empty(); }
  // Returns the number by which servers know block `id` of this map.
  BlockId WholeId(BlockId id) const { return is_whole() ? id : whole_ids_[id]; }
  // Returns the block of this map that servers know as `whole_id`, or nullopt if this map does not
  // contain it.
  std::optional<BlockId> Find(BlockId whole_id) const;
  // Returns the blocks that server k owns in the whole map, by their whole-map numbers, ascending.
  const std::vector<BlockId>& all_owned_by(int server) const {
    return is_whole() ? owned_[server] : all_owned_[server];
  }

  const std::vector<BlockRange>& blocks() const { return blocks_; }
  // Returns the blocks that server k owns in this map, in ascending order.
  const std::vector<BlockId>& owned_by(int server) const { return owned_[server]; }
  int servers() const { return static_cast<int>(owned_.size()); }

 private:
  std::vector<BlockRange> blocks_;
  std::vector<std::vector<BlockId>> owned_;  // by server
  // whole_ids_ and all_owned_ are empty in a whole map. The blocks of a part keep the order of the
  // whole map.
  std::vector<BlockId> whole_ids_;
  std::vector<std::vector<BlockId>> all_owned_;
};

}  // namespace torchps
