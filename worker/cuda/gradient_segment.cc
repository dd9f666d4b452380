#include "worker/cuda/gradient_segment.h"

#include <utility>

#include "worker/cuda/pinned_memory.h"

namespace torchps {
namespace {

// Unpins the memory before unmapping it.
struct PinnedSegment {
  std::unique_ptr<PushSegment> segment;
  std::unique_ptr<PinnedMemory> pinned;
};

}  // namespace

absl::StatusOr<std::shared_ptr<PushSegment>> MakeGradientSegment(const ModelLayout& layout,
                                                                 int buffers, bool pinned) {
  auto made = PushSegment::Create(layout, buffers);
  if (!made.ok()) return made.status();
  const auto segment = std::make_shared<PinnedSegment>();
  segment->segment = *std::move(made);
  if (pinned) {
    const absl::StatusOr<CudaPinning> cuda = FindCudaPinning();
    if (!cuda.ok()) return cuda.status();
    auto memory = PinnedMemory::Create(*cuda, segment->segment->memory());
    if (!memory.ok()) return memory.status();
    segment->pinned = *std::move(memory);
  }
  return std::shared_ptr<PushSegment>(segment, segment->segment.get());
}

}  // namespace torchps
