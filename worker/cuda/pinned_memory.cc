#include "worker/cuda/pinned_memory.h"

#include <dlfcn.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// Numbers of cuda_runtime_api.h.
constexpr int kSuccess = 0;
constexpr unsigned kPortable = 1;  // pinned for every device's context

template <typename Function>
bool Find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

}  // namespace

absl::optional<CudaPinning> FindCudaPinning() {
  CudaPinning cuda;
  const bool found =
      Find("cudaHostRegister", &cuda.pin) && Find("cudaHostUnregister", &cuda.unpin) &&
      Find("cudaGetErrorString", &cuda.error_text) && Find("cudaGetLastError", &cuda.forget_error);
  return found ? absl::make_optional(cuda) : absl::nullopt;
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
