#include "shm/push_segment.h"

#include "absl/memory/memory.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<PushSegment>> PushSegment::Create(const ModelLayout& layout,
                                                                 int buffers) {
  auto segment =
      SharedSegment::Create("torchps-gradients", PushSegmentLayout(layout).bytes(buffers));
  if (!segment.ok()) return segment.status();
  return absl::WrapUnique(new PushSegment(layout, buffers, *std::move(segment)));
}

PushSegment::PushSegment(const ModelLayout& layout, int buffers,
                         std::unique_ptr<SharedSegment> segment)
    : layout_(layout), size_(layout.size()), buffers_(buffers), segment_(std::move(segment)) {}

absl::Span<float> PushSegment::buffer(int index) {
  return absl::MakeSpan(reinterpret_cast<float*>(segment_->data() + layout_.BufferAt(index)),
                        size_);
}

int PushSegment::GetBuffer(absl::Span<const float> gradients) {
  for (int index = 0; index < buffers_; ++index) {
    if (buffer(index).data() == gradients.data()) return index;
  }
  return -1;
}

absl::Span<uint8_t> PushSegment::memory() {
  return absl::MakeSpan(segment_->data(), segment_->bytes());
}

}  // namespace torchps
