#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/shared_block.h"
#include "common/shared_layout.h"
#include "common/shared_segment.h"

namespace torchps {

// The memory in which the blocks of one server have their values. Where it may be shared, workers
// of this machine read it in place; where the kernel refuses that, it is memory like any other.
//
// Gives out memory and touches none of it afterwards; immutable, so thread-safe. Values begin as
// zeros.
class ValueArena {
 public:
  // RESOURCE_EXHAUSTED: the kernel gives no memory for these blocks, shared or not.
  static absl::StatusOr<std::unique_ptr<ValueArena>> Create(const BlockMap& map, int server,
                                                            bool may_be_shared);

  ~ValueArena();
  ValueArena(const ValueArena&) = delete;
  ValueArena& operator=(const ValueArena&) = delete;

  // Of the owned block number `index`, in the order of BlockMap::owned_by. Valid as long as this
  // object.
  absl::Span<float> values(size_t index) const;
  SharedBlock* head(size_t index) const;

  // Null where nothing is shared.
  const SharedSegment* segment() const { return segment_.get(); }

 private:
  ValueArena(const BlockMap& map, int server);

  const ValueSegmentLayout layout_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<SharedSegment> segment_;
  // Of the segment; without one, of memory that is mapped here alone.
  uint8_t* data_ = nullptr;
};

}  // namespace torchps
