#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "common/mutex.h"
#include "shm/shared_layout.h"
#include "shm/shared_segment.h"

namespace torchps {

// The memory that workers of this machine share with this server, by slot: where their gradients
// lie while they are pushed.
//
// Thread-safe. A segment stays mapped until its slot's part is closed and the last reader is done.
class PushSegments {
 public:
  explicit PushSegments(const ModelLayout& layout) : layout_(layout) {}

  // From now on the slot's incarnation pushes from the segment that it offers; what an earlier one
  // had is let go. Errors as SharedSegment::Open; then the slot has none.
  absl::Status Open(SlotId slot, Incarnation incarnation, const SharedSegment::Offer& offer);

  // Lets the slot's segment go if it is of this incarnation or an older one.
  void Close(SlotId slot, Incarnation incarnation);

  // Null where this incarnation of the slot shares none.
  std::shared_ptr<const SharedSegment> Find(SlotId slot, Incarnation incarnation) const;

  // Whether the segment has such a buffer.
  bool Has(const SharedSegment& segment, uint32_t buffer) const;
  // What the slot pushes for a block. REQUIRES: Has(segment, buffer).
  absl::Span<const float> Read(const SharedSegment& segment, const BlockRange& block,
                               uint32_t buffer) const;

 private:
  struct Entry {
    Incarnation incarnation = 0;
    std::shared_ptr<const SharedSegment> segment;
  };

  const PushSegmentLayout layout_;

  mutable Mutex mutex_;
  std::map<SlotId, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
