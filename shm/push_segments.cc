#include "shm/push_segments.h"

#include <utility>

namespace torchps {

absl::Status PushSegments::Open(SlotId slot, Incarnation incarnation,
                                const SharedSegment::Offer& offer) {
  auto opened = SharedSegment::Open(offer, layout_.bytes());
  if (!opened.ok()) {
    Close(slot, incarnation);
    return opened.status();
  }
  std::shared_ptr<const SharedSegment> segment = *std::move(opened);
  MutexLock lock(&mutex_);
  Entry& entry = entries_[slot];
  // A Hello that was overtaken by a later process's changes nothing.
  if (entry.incarnation > incarnation) return absl::OkStatus();
  entry.incarnation = incarnation;
  // Unmapped without the lock.
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

absl::Span<const float> PushSegments::Read(const SharedSegment& segment,
                                           const BlockRange& block) const {
  return absl::MakeConstSpan(
      reinterpret_cast<const float*>(segment.data() + layout_.OffsetOf(block)), block.length);
}

}  // namespace torchps
