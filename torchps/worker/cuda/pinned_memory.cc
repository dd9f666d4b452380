#include "torchps/worker/cuda/pinned_memory.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/process/found_functions.h"

namespace torchps {
namespace {

// Constants of cuda_runtime_api.h.
constexpr int kSuccess = 0;
constexpr unsigned kPortable = 1;  // pinned for all contexts

}  // namespace

absl::StatusOr<CudaPinning> FindCudaPinning() {
  CudaPinning cuda;
  FoundFunctions process = FoundFunctions::InProcess("this process");
  process.Find("cudaHostRegister", &cuda.pin);
  process.Find("cudaHostUnregister", &cuda.unpin);
  process.Find("cudaGetErrorString", &cuda.error_text);
  process.Find("cudaGetLastError", &cuda.forget_error);
  if (!process.status().ok()) return process.status();
  return cuda;
}

absl::StatusOr<std::unique_ptr<PinnedMemory>> PinnedMemory::Create(const CudaPinning& cuda,
                                                                   absl::Span<uint8_t> memory) {
  const int result = cuda.pin(memory.data(), memory.size(), kPortable);
  if (result != kSuccess) {
    cuda.forget_error();
    return absl::UnavailableError(absl::StrCat(memory.size(), " bytes of shared memory cannot be ",
                                               "pinned: ", cuda.error_text(result)));
  }
  return absl::WrapUnique(new PinnedMemory(cuda, memory.data()));
}

PinnedMemory::~PinnedMemory() {
  if (cuda_.unpin(memory_) != kSuccess) cuda_.forget_error();
}

namespace {

// The destructor unpins the memory before it unmaps it.
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
