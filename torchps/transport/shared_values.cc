#include "torchps/transport/shared_values.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "torchps/common/cpu/streaming_copy.h"
#include "torchps/transport/shared_layout.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<const ValueArena>> ValueArena::Create(const BlockMap& map,
                                                                     int server) {
  absl::StatusOr<std::unique_ptr<SharedSegment>> segment =
      SharedSegment::Create("torchps-values", ValueSegmentLayout(map, server).bytes());
  if (!segment.ok()) return segment.status();
  return absl::WrapUnique<const ValueArena>(new ValueArena(map, server, *std::move(segment)));
}

ValueArena::ValueArena(const BlockMap& map, int server, std::unique_ptr<SharedSegment> segment)
    : layout_(map, server), segment_(std::move(segment)) {
  for (const BlockId id : map.owned_by(server)) lengths_.push_back(map.blocks()[id].length);
}

absl::Span<float> ValueArena::values(size_t index) const {
  return absl::MakeSpan(reinterpret_cast<float*>(segment_->data() + layout_.GetValues(index)),
                        lengths_[index]);
}

SharedBlock* ValueArena::head(size_t index) const {
  return reinterpret_cast<SharedBlock*>(segment_->data() + layout_.GetHead(index));
}

SharedRuns::SharedRuns(const BlockMap* map, int server)
    : map_(*map), owned_(map->owned_by(server)), taken_(owned_.size()), left_(owned_.size()) {}

std::optional<SharedRuns::Run> SharedRuns::Next(const std::vector<bool>& is_ready,
                                                const std::vector<Version>& versions,
                                                const std::vector<bool>& alone) {
  const auto is_alone = [&](size_t index) { return !alone.empty() && alone[owned_[index]]; };
  const auto is_free = [&](size_t index) { return is_ready[owned_[index]] && !taken_[index]; };
  size_t first = next_;
  for (size_t looked_at = 0; looked_at < owned_.size(); ++looked_at, ++first) {
    if (first >= owned_.size()) first = 0;
    if (is_free(first)) break;
  }
  if (left_ == 0 || first >= owned_.size() || !is_free(first)) return std::nullopt;
  const Version version = versions[owned_[first]];
  int64_t bytes = 0;
  size_t end = first;
  while (end < owned_.size() && is_free(end) && versions[owned_[end]] == version) {
    bytes += map_.blocks()[owned_[end]].length * static_cast<int64_t>(sizeof(float));
    if (end > first && (bytes > kMaxRunBytes || is_alone(end) || is_alone(first))) break;
    taken_[end] = true;
    ++end;
  }
  left_ -= end - first;
  next_ = end;
  return Run{first, end};
}

absl::StatusOr<std::unique_ptr<const SharedValues>> SharedValues::Open(
    const SharedSegment::Offer& offer, const BlockMap& map, int server) {
  auto segment = SharedSegment::Open(offer, ValueSegmentLayout(map, server).bytes());
  if (!segment.ok()) return segment.status();
  return absl::WrapUnique<const SharedValues>(new SharedValues(*std::move(segment), map, server));
}

SharedValues::SharedValues(std::unique_ptr<const SharedSegment> segment, const BlockMap& map,
                           int server)
    : segment_(std::move(segment)), layout_(map, server) {
  for (const BlockId id : map.owned_by(server)) {
    block_bytes_.push_back(map.blocks()[id].length * sizeof(float));
  }
}

std::optional<Version> SharedValues::Read(size_t index, Version have, float* destination) const {
  const auto* head =
      reinterpret_cast<const SharedBlock*>(segment_->data() + layout_.GetHead(index));
  return head->TryRead(have, [&] {
    const uint8_t* const values = segment_->data() + layout_.GetValues(index);
    if (segment_->bytes() >= kStreamFromBytes) {
      StreamingCopy(destination, values, block_bytes_[index]);
    } else {
      std::memcpy(destination, values, block_bytes_[index]);
    }
  });
}

}  // namespace torchps
