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

// The memory from which a worker pushes to servers on its own machine: the flat gradient vector
// itself, and a copy of the averaged values, which otherwise lie among the values.
//
// Gives out memory; when it is written and read is the trainer's and PendingPush's business.
// Servers only read it.
class PushSegment {
 public:
  // Zeros. UNAVAILABLE: the kernel gives no such memory.
  static absl::StatusOr<std::unique_ptr<PushSegment>> Create(const ModelLayout& layout);

  // What a server is told of it.
  SharedSegment::Offer offer() const { return segment_->offer(); }

  // layout.trained_size() and layout.averaged_size() elements. Valid as long as this object.
  absl::Span<float> gradients();
  absl::Span<float> averaged();

 private:
  PushSegment(const ModelLayout& layout, std::unique_ptr<SharedSegment> segment);

  const PushSegmentLayout layout_;
  const int64_t trained_size_;
  const int64_t averaged_size_;
  const std::unique_ptr<SharedSegment> segment_;
};

}  // namespace torchps
