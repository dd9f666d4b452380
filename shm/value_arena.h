#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "shm/shared_block.h"
#include "shm/shared_layout.h"
#include "shm/shared_segment.h"

namespace torchps {

// Shared memory for the block values of a server. The server moves the values here when a worker on
// this machine first reads them in place.
//
// Only provides the memory and does not access it after creation. Immutable and therefore
// thread-safe.
class ValueArena {
 public:
  // Returns UNAVAILABLE if the kernel refuses the memory.
  static absl::StatusOr<std::unique_ptr<const ValueArena>> Create(const BlockMap& map, int server);

  ValueArena(const ValueArena&) = delete;
  ValueArena& operator=(const ValueArena&) = delete;

  // Return the memory for owned block number `index`, in the order of BlockMap::owned_by. Valid
  // during the lifetime of this object.
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
