#pragma once

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// The layout as it travels, segments in the layout's order. Thread-safe, as is DecodeLayout.
ModelLayoutProto EncodeLayout(const ModelLayout& layout);

// The layout that a peer sent, checked as ModelLayout::Create checks it; offsets follow from the
// order. INVALID_ARGUMENT names the segment: what Create refuses, or a group below -1.
absl::StatusOr<ModelLayout> DecodeLayout(const ModelLayoutProto& proto);

}  // namespace torchps
