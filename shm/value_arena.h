#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "shm/shared_block.h"
#include "shm/shared_layout.h"
#include "shm/shared_segment.h"

namespace torchps {

// The shared memory in which the blocks of one server have their values from the moment on that a
// worker of this machine reads them in place.
//
// Gives out memory and touches none of it afterwards; immutable, so thread-safe.
class ValueArena {
 public:
  // RESOURCE_EXHAUSTED: the kernel gives no memory that can be shared.
  static absl::StatusOr<std::unique_ptr<const ValueArena>> Create(const BlockMap& map, int server);

  ValueArena(const ValueArena&) = delete;
  ValueArena& operator=(const ValueArena&) = delete;

  // Of the owned block number `index`, in the order of BlockMap::owned_by. Valid as long as this
  // object.
  absl::Span<float> values(size_t index) const;
  SharedBlock* head(size_t index) const;

  const SharedSegment& segment() const { return *segment_; }

 private:
  ValueArena(const BlockMap& map, int server, std::unique_ptr<SharedSegment> segment);

  const ValueSegmentLayout layout_;
  std::vector<int64_t> lengths_;
  const std::unique_ptr<SharedSegment> segment_;
};

}  // namespace torchps
