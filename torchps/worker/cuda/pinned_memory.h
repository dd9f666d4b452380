#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/model_layout.h"
#include "torchps/transport/push_segments.h"

namespace torchps {

// Functions of CUDA's run-time library (cuda_runtime_api.h). They have not changed since CUDA 4.
// Declared here because --config=cuda builds without CUDA's headers.
struct CudaPinning {
  int (*pin)(void* memory, size_t bytes, unsigned flags) = nullptr;  // cudaHostRegister
  int (*unpin)(void* memory) = nullptr;                              // cudaHostUnregister
  const char* (*error_text)(int result) = nullptr;                   // cudaGetErrorString
  // cudaGetLastError. Clears the error, which torch would otherwise report as its own.
  int (*forget_error)() = nullptr;
};

// Finds the functions in the library that this process loaded, for example through a CUDA build of
// torch. UNAVAILABLE: CUDA is not loaded; the message names the missing function.
absl::StatusOr<CudaPinning> FindCudaPinning();

// Pins existing memory, so that GPUs copy it as fast as memory that torch pinned. Torch cannot pin
// memory shared with another process. Thread-safe. Borrows the memory, which must stay mapped until
// the destructor returns.
class PinnedMemory {
 public:
  // UNAVAILABLE: CUDA cannot pin the memory, for example because the limit on locked memory is too
  // low. The message quotes CUDA. REQUIRES: `memory` consists of whole pages.
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

// Allocates host memory for a model's gradients that servers on this machine can read, in `buffers`
// buffers (PushSegment). If `pinned` is true, the memory stays pinned while it is mapped, so that a
// GPU can copy into it.
//
// UNAVAILABLE: the kernel does not provide shared memory, CUDA is not loaded, or the memory cannot
// be pinned (see PinnedMemory).
absl::StatusOr<std::shared_ptr<PushSegment>> MakeGradientSegment(const ModelLayout& layout,
                                                                 int buffers, bool pinned);

}  // namespace torchps
