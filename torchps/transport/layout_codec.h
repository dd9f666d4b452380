#pragma once

#include "absl/status/statusor.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Encodes a layout, keeping the segment order. Thread-safe.
ModelLayoutProto EncodeLayout(const ModelLayout& layout);

// Decodes and validates a layout from a peer. The segment order determines the offsets. Returns
// INVALID_ARGUMENT, naming the segment, if ModelLayout::Create rejects the layout or a group is
// below -1. Thread-safe.
absl::StatusOr<ModelLayout> DecodeLayout(const ModelLayoutProto& proto);

}  // namespace torchps
