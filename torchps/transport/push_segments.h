#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {

// Shared memory from which a worker pushes to servers on the same machine. Each buffer holds the
// flat gradient vector and a copy of the averaged values. Workers that copy gradients from a device
// use two buffers, so that the copy of one step can overlap with servers reading the previous step.
//
// Only provides the memory. The trainer and PendingPush coordinate access; servers only read.
class PushSegment {
 public:
  // Creates zeroed buffers. Returns UNAVAILABLE if the kernel refuses the memory.
  static absl::StatusOr<std::unique_ptr<PushSegment>> Create(const ModelLayout& layout,
                                                             int buffers = 1);

  // Returns the offer to send to servers.
  SharedSegment::Offer offer() const { return segment_->offer(); }

  int buffers() const { return buffers_; }
  // Returns layout.size() elements: the gradients followed by the averaged values. Valid during the
  // lifetime of this object.
  absl::Span<float> buffer(int index);
  // Returns the index of the buffer that starts at `gradients`, or -1 if none does.
  int GetBuffer(absl::Span<const float> gradients);

  // Returns the whole segment, a multiple of the page size, for callers that pin memory.
  absl::Span<uint8_t> memory();

 private:
  PushSegment(const ModelLayout& layout, int buffers, std::unique_ptr<SharedSegment> segment);

  const PushSegmentLayout layout_;
  const int64_t size_;
  const int buffers_;
  const std::unique_ptr<SharedSegment> segment_;
};

// Holds, for each slot, the memory segment from which a worker on this machine pushes gradients.
//
// Thread-safe. A segment stays mapped until the slot's entry is closed and the last reader is done.
class PushSegments {
 public:
  explicit PushSegments(const ModelLayout& layout) : layout_(layout) {}

  // Maps the segment that this incarnation of the slot offers and replaces the segment of an
  // earlier incarnation. Returns the errors of SharedSegment::Open; after an error the slot has no
  // segment.
  absl::Status Open(SlotId slot, Incarnation incarnation, const SharedSegment::Offer& offer);

  // Releases the slot's segment if it belongs to this incarnation or an older one. It is unmapped
  // when the last reader is done.
  void Close(SlotId slot, Incarnation incarnation);

  // Returns the segment of this incarnation of the slot, or null if it does not share one.
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
