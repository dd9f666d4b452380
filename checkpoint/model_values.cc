#include "checkpoint/model_values.h"

#include <algorithm>

namespace torchps {

absl::Status ModelValues::Read(const Segment& segment, const Sink& sink) {
  const int64_t end = segment.offset + segment.length;
  for (int64_t offset = segment.offset; offset < end;) {
    const BlockId block = reader_.BlockAt(offset);
    if (block_ != block) {
      block_ = -1;
      if (absl::Status status = reader_.ReadValues(block, &values_); !status.ok()) return status;
      block_ = block;
    }
    const BlockRange& range = reader_.blocks()[block];
    const int64_t length = std::min(end, range.offset + range.length) - offset;
    const absl::Span<const float> piece = absl::MakeConstSpan(values_).subspan(
        static_cast<size_t>(offset - range.offset), static_cast<size_t>(length));
    if (absl::Status status = sink(piece); !status.ok()) return status;
    offset += length;
  }
  return absl::OkStatus();
}

}  // namespace torchps
