#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace torchps {

// What is used of CUDA's run-time library (cuda_runtime_api.h), whose functions have stayed the
// same since CUDA 4. Not that header: --config=cuda does without CUDA's own.
struct CudaPinning {
  int (*pin)(void* memory, size_t bytes, unsigned flags) = nullptr;  // cudaHostRegister
  int (*unpin)(void* memory) = nullptr;                              // cudaHostUnregister
  const char* (*error_text)(int result) = nullptr;                   // cudaGetErrorString
  // cudaGetLastError. It forgets the error, which torch's next look would take for its own.
  int (*forget_error)() = nullptr;
};

// That of the library that this process has loaded, as a CUDA build of torch does. UNAVAILABLE
// names the function that is missing: none is loaded.
absl::StatusOr<CudaPinning> FindCudaPinning();

// Memory of ours, pinned: GPUs copy from it and to it as from what torch has pinned, which cannot
// be memory that another process sees. Thread-safe. Borrows the memory, which must be mapped until
// this object is gone.
class PinnedMemory {
 public:
  // UNAVAILABLE with CUDA's words: it may not be pinned, as where a limit on locked memory is too
  // low. REQUIRES: whole pages.
  static absl::StatusOr<std::unique_ptr<PinnedMemory>> Create(const CudaPinning& cuda,
                                                              absl::Span<uint8_t> memory);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  PinnedMemory(const CudaPinning& cuda, uint8_t* memory) : cuda_(cuda), memory_(memory) {}

  const CudaPinning cuda_;
  uint8_t* const memory_;
};

}  // namespace torchps
