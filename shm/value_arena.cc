#include "shm/value_arena.h"

#include <utility>

#include "absl/memory/memory.h"

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

}  // namespace torchps
