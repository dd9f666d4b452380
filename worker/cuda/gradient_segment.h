#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "shm/push_segment.h"

namespace torchps {

// The host's memory of a model's gradients, which servers on this machine can read: in so many
// buffers (PushSegment). For a GPU that copies into it, it is `pinned`, for as long as it is
// mapped.
//
// UNAVAILABLE: the kernel gives no such memory; or it cannot be pinned, as PinnedMemory says, or
// since no CUDA is loaded.
absl::StatusOr<std::shared_ptr<PushSegment>> MakeGradientSegment(const ModelLayout& layout,
                                                                 int buffers, bool pinned);

}  // namespace torchps
