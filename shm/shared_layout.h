#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/block_map.h"
#include "common/model_layout.h"
#include "shm/shared_block.h"

// What lies where in the segments that a worker and a server share (shm/shared_segment.h). Both
// sides compute it from what Hello made them agree on, so no offset is ever sent. Offsets are bytes
// from the segment's beginning. Immutable, so thread-safe.

namespace torchps {

// A worker's segment: what it pushes, in one buffer, or in two in turn (GradientOutbox).
//
//   | header page | gradients, trained_size() floats, averaged values, averaged_size() floats |
//   | the same again |
class PushSegmentLayout {
 public:
  static constexpr int kMaxBuffers = 2;

  explicit PushSegmentLayout(const ModelLayout& layout);

  // A whole segment of so many buffers.
  size_t bytes(int buffers = 1) const;

  // Where a buffer begins. The averaged values follow the gradients.
  size_t BufferAt(int buffer) const;

  // Where a block's `length` floats begin.
  size_t GetOffset(const BlockRange& block, int buffer = 0) const;

 private:
  size_t buffer_bytes_;
};

// A server's segment: the values of the blocks that it owns.
//
//   | header page | one SharedBlock per block | values of each block, from a cache line on |
class ValueSegmentLayout {
 public:
  ValueSegmentLayout(const BlockMap& map, int server);

  // Of the owned block number `index`, in the order of BlockMap::owned_by.
  size_t GetHead(size_t index) const;
  size_t GetValues(size_t index) const { return values_[index]; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<size_t> values_;
  size_t bytes_;
};

}  // namespace torchps
