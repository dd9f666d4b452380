#include "shm/shared_values.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "common/cpu/streaming_copy.h"
#include "shm/shared_block.h"

namespace torchps {

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
