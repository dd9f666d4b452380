#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "shm/push_segment.h"

namespace torchps {

// Allocates host memory for a model's gradients that servers on this machine can read, in `buffers`
// buffers (PushSegment). If `pinned` is true, the memory stays pinned while it is mapped, so that a
// GPU can copy into it.
//
// UNAVAILABLE: the kernel does not provide shared memory, CUDA is not loaded, or the memory cannot
// be pinned (see PinnedMemory).
absl::StatusOr<std::shared_ptr<PushSegment>> MakeGradientSegment(const ModelLayout& layout,
                                                                 int buffers, bool pinned);

}  // namespace torchps
