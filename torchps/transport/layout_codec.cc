#include "torchps/transport/layout_codec.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace torchps {

ModelLayoutProto EncodeLayout(const ModelLayout& layout) {
  ModelLayoutProto proto;
  for (const Segment& segment : layout.segments()) {
    SegmentProto* out = proto.add_segment();
    out->set_name(segment.name);
    out->mutable_shape()->Add(segment.shape.begin(), segment.shape.end());
    out->set_group(segment.group);
    out->set_averaged(segment.averaged);
    out->set_starts_block(segment.starts_block);
  }
  return proto;
}

absl::StatusOr<ModelLayout> DecodeLayout(const ModelLayoutProto& proto) {
  std::vector<Segment> segments;
  segments.reserve(proto.segment_size());
  for (const SegmentProto& in : proto.segment()) {
    if (in.group() < -1) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment '", in.name(), "' has group ", in.group(),
                       "; expected an index of optimizer.group, or -1 for none"));
    }
    Segment segment;
    segment.name = in.name();
    segment.shape.assign(in.shape().begin(), in.shape().end());
    segment.group = in.group();
    segment.averaged = in.averaged();
    segment.starts_block = in.starts_block();
    segments.push_back(std::move(segment));
  }
  return ModelLayout::Create(std::move(segments));
}

}  // namespace torchps
