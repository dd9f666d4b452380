#include "worker/cuda/pinned_memory.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/process/found_functions.h"

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

}  // namespace torchps
