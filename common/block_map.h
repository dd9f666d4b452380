#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "common/model_layout.h"

namespace torchps {

// One block: a run of the flat vector, the unit of transfer, locking, versioning and placement.
struct BlockRange {
  BlockId id = 0;
  int64_t offset = 0;  // first element in the flat vector
  int64_t length = 0;  // elements, at least 1
  bool averaged = false;
  int server = 0;  // its owner
};

// Which blocks the flat vector is cut into and which server owns each. Blocks never span the
// border between trained and averaged elements, nor one at which a stage of the model begins
// (Segment::starts_block); the last one before such a border and the last one of all may be
// shorter. Block b belongs to server b mod S, so that neighbours are spread evenly.
//
// Immutable, so thread-safe; copyable. Worker and server compute it from the same layout, block
// size and number of servers, and so agree without sending it.
class BlockMap {
 public:
  BlockMap() = default;

  // INVALID_ARGUMENT: `block_bytes` is not a positive multiple of 4, no server, more servers than
  // trained elements, more than 2^24 blocks.
  static absl::StatusOr<BlockMap> Create(const ModelLayout& layout, int64_t block_bytes,
                                         int servers);

  // Of a process that holds some of the trained elements, from `trained` on, and some of the
  // averaged ones, from `averaged` on, both in the whole vector: a map of its own vector, in which
  // the former come first. Its blocks are numbered and placed in that vector; they belong to the
  // servers that the whole map gives them to. INVALID_ARGUMENT: a run begins or ends within a
  // block. REQUIRES: is_whole().
  absl::StatusOr<BlockMap> Part(int64_t trained, int64_t trained_length, int64_t averaged,
                                int64_t averaged_length) const;

  // Not of a part.
  bool is_whole() const { return whole_ids_.empty(); }
  // By which number servers know a block of this map.
  BlockId WholeId(BlockId id) const { return is_whole() ? id : whole_ids_[id]; }
  // The block of this map that servers know by this number, if there is one.
  absl::optional<BlockId> Find(BlockId whole_id) const;
  // All blocks of server k, by the numbers that it knows, in ascending order.
  const std::vector<BlockId>& all_owned_by(int server) const {
    return is_whole() ? owned_[server] : all_owned_[server];
  }

  const std::vector<BlockRange>& blocks() const { return blocks_; }
  // The blocks of server k in this map, in ascending order.
  const std::vector<BlockId>& owned_by(int server) const { return owned_[server]; }
  int servers() const { return static_cast<int>(owned_.size()); }

 private:
  std::vector<BlockRange> blocks_;
  std::vector<std::vector<BlockId>> owned_;
  // Of a part, whose blocks are in the order of the whole map's.
  std::vector<BlockId> whole_ids_;
  std::vector<std::vector<BlockId>> all_owned_;
};

}  // namespace torchps
