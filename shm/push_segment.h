#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/model_layout.h"
#include "shm/shared_layout.h"
#include "shm/shared_segment.h"

namespace torchps {

// The memory from which a worker pushes to servers on its own machine: a buffer holds the flat
// gradient vector itself, and a copy of the averaged values, which otherwise lie among the values.
// A worker whose gradients come down from a device has two, so that one step comes down while
// servers still read the one before.
//
// Gives out memory; when it is written and read is the trainer's and PendingPush's business.
// Servers only read it.
class PushSegment {
 public:
  // Zeros. UNAVAILABLE: the kernel gives no such memory.
  static absl::StatusOr<std::unique_ptr<PushSegment>> Create(const ModelLayout& layout,
                                                             int buffers = 1);

  // What a server is told of it.
  SharedSegment::Offer offer() const { return segment_->offer(); }

  int buffers() const { return buffers_; }
  // layout.size() elements: the gradients, then the averaged values. Valid as long as this object.
  absl::Span<float> buffer(int index);
  // Which buffer begins with these gradients; -1: none, they lie elsewhere.
  int GetBuffer(absl::Span<const float> gradients);

  // All of it, whole pages, for whoever pins memory.
  absl::Span<uint8_t> memory();

 private:
  PushSegment(const ModelLayout& layout, int buffers, std::unique_ptr<SharedSegment> segment);

  const PushSegmentLayout layout_;
  const int64_t size_;
  const int buffers_;
  const std::unique_ptr<SharedSegment> segment_;
};

}  // namespace torchps
