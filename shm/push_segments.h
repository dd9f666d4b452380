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

// Holds, for each slot, the memory segment from which a worker on this machine pushes gradients.
//
// Thread-safe. A segment stays mapped until the slot's entry is closed and the last reader is done.
class PushSegments {
 public:
  explicit PushSegments(const ModelLayout& layout) : layout_(layout) {}

  // Maps the segment that this incarnation of the slot offers and replaces the segment of an
  // earlier incarnation. On error, returned as from SharedSegment::Open, the slot is left without a
  // segment.
  absl::Status Open(SlotId slot, Incarnation incarnation, const SharedSegment::Offer& offer);

  // Unmaps the slot's segment if it belongs to this incarnation or an older one.
  void Close(SlotId slot, Incarnation incarnation);

  // Returns null if this incarnation of the slot does not share a segment.
  std::shared_ptr<const SharedSegment> Find(SlotId slot, Incarnation incarnation) const;

  // Returns true if the segment contains buffer number `buffer`.
  bool Has(const SharedSegment& segment, uint32_t buffer) const;
  // Returns the elements that the slot pushes for `block`. REQUIRES: Has(segment, buffer).
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
