#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/block_map.h"
#include "common/model_layout.h"
#include "shm/shared_block.h"

// Memory layout of the segments that workers and servers share (shm/shared_segment.h). Both sides
// compute it from the parameters agreed in Hello, so offsets are never sent. Offsets count bytes
// from the beginning of the segment. Immutable and therefore thread-safe.

namespace torchps {

// The layout of a worker's segment. It holds the pushed elements in one buffer, or in two
// alternating buffers (GradientOutbox).
//
//   | header page | gradients, trained_size() floats, averaged values, averaged_size() floats |
//   | second buffer, same layout |
class PushSegmentLayout {
 public:
  static constexpr int kMaxBuffers = 2;

  explicit PushSegmentLayout(const ModelLayout& layout);

  // Returns the size of a segment with this many buffers.
  size_t bytes(int buffers = 1) const;

  // Returns the offset of a buffer. The averaged values follow the gradients.
  size_t BufferAt(int buffer) const;

  // Returns the offset of the block's `length` floats.
  size_t GetOffset(const BlockRange& block, int buffer = 0) const;

 private:
  size_t buffer_bytes_;
};

// The layout of a server's segment. It holds the values of the blocks that the server owns.
//
//   | header page | one SharedBlock per block | values of each block, from a cache line on |
class ValueSegmentLayout {
 public:
  ValueSegmentLayout(const BlockMap& map, int server);

  // Return the offsets for owned block number `index`, in the order of BlockMap::owned_by.
  size_t GetHead(size_t index) const;
  size_t GetValues(size_t index) const { return values_[index]; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<size_t> values_;
  size_t bytes_;
};

}  // namespace torchps
