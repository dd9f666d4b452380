#include "shm/push_segment.h"

#include "absl/memory/memory.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<PushSegment>> PushSegment::Create(const ModelLayout& layout) {
  auto segment = SharedSegment::Create("torchps-gradients", PushSegmentLayout(layout).bytes());
  if (!segment.ok()) return segment.status();
  return absl::WrapUnique(new PushSegment(layout, *std::move(segment)));
}

PushSegment::PushSegment(const ModelLayout& layout, std::unique_ptr<SharedSegment> segment)
    : layout_(layout),
      trained_size_(layout.trained_size()),
      averaged_size_(layout.averaged_size()),
      segment_(std::move(segment)) {}

absl::Span<float> PushSegment::gradients() {
  return absl::MakeSpan(reinterpret_cast<float*>(segment_->data() + layout_.gradients()),
                        trained_size_);
}

absl::Span<float> PushSegment::averaged() {
  return absl::MakeSpan(reinterpret_cast<float*>(segment_->data() + layout_.averaged()),
                        averaged_size_);
}

}  // namespace torchps
