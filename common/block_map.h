#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
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
// border between trained and averaged elements; the last one before it and the last one of all may
// be shorter. Block b belongs to server b mod S, so that neighbours are spread evenly.
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

  const std::vector<BlockRange>& blocks() const { return blocks_; }
  // The blocks of server k, in ascending order.
  const std::vector<BlockId>& owned_by(int server) const { return owned_[server]; }
  int servers() const { return static_cast<int>(owned_.size()); }

 private:
  std::vector<BlockRange> blocks_;
  std::vector<std::vector<BlockId>> owned_;
};

}  // namespace torchps
