#include "torchps/transport/push_segments.h"

#include <utility>

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

absl::Status PushSegments::Open(SlotId slot, Incarnation incarnation,
                                const SharedSegment::Offer& offer) {
  const size_t two = layout_.bytes(PushSegmentLayout::kMaxBuffers);
  auto opened = SharedSegment::Open(offer, offer.bytes == two ? two : layout_.bytes());
  if (!opened.ok()) {
    Close(slot, incarnation);
    return opened.status();
  }
  std::shared_ptr<const SharedSegment> segment = *std::move(opened);
  MutexLock lock(&mutex_);
  Entry& entry = entries_[slot];
  // Ignore a Hello that arrives after the Hello of a later process.
  if (entry.incarnation > incarnation) return absl::OkStatus();
  entry.incarnation = incarnation;
  // `segment` takes the old segment, so that it is unmapped after the lock is released.
  std::swap(entry.segment, segment);
  return absl::OkStatus();
}

void PushSegments::Close(SlotId slot, Incarnation incarnation) {
  std::shared_ptr<const SharedSegment> let_go;
  MutexLock lock(&mutex_);
  const auto it = entries_.find(slot);
  if (it == entries_.end() || it->second.incarnation > incarnation) return;
  let_go = std::move(it->second.segment);
  entries_.erase(it);
}

std::shared_ptr<const SharedSegment> PushSegments::Find(SlotId slot,
                                                        Incarnation incarnation) const {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(slot);
  if (it == entries_.end() || it->second.incarnation != incarnation) return nullptr;
  return it->second.segment;
}

bool PushSegments::Has(const SharedSegment& segment, uint32_t buffer) const {
  return buffer < PushSegmentLayout::kMaxBuffers &&
         layout_.bytes(static_cast<int>(buffer) + 1) <= segment.bytes();
}

absl::Span<const float> PushSegments::Read(const SharedSegment& segment, const BlockRange& block,
                                           uint32_t buffer) const {
  const size_t offset = layout_.GetOffset(block, static_cast<int>(buffer));
  return absl::MakeConstSpan(reinterpret_cast<const float*>(segment.data() + offset), block.length);
}

}  // namespace torchps
