#pragma once

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/worker/kernels/kernel_launcher.h"

namespace torchps {

// Functions of the CUDA driver, with the types of cuda.h. Each returns 0 on success.
struct CudaDriver {
  using Context = void*;
  using Module = void*;
  using Function = void*;

  int (*init)(unsigned flags);
  int (*device)(int* device, int ordinal);
  int (*attribute)(int* value, int attribute, int device);
  int (*retain_context)(Context*, int device);
  int (*release_context)(int device);
  int (*push_context)(Context);
  int (*pop_context)(Context*);
  int (*load_module)(Module*, const void* image);
  int (*unload_module)(Module);
  int (*function)(Function*, Module, const char* name);
  int (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void* const* arguments, void** extra);
  int (*error_text)(int result, const char** text);
};

// Runs the kernels on a GPU, in torch's context. NVRTC compiles the kernels and the driver loads
// them. Both libraries are found at run time, so building does not need CUDA.
//
// Thread-safe; the calling thread's current context is unchanged. Destroy the launcher after
// launched kernels have ended.
class CudaLauncher final : public KernelLauncher {
 public:
  // UNAVAILABLE: the driver or NVRTC is missing. INTERNAL: the driver or NVRTC failed.
  static absl::StatusOr<std::unique_ptr<KernelLauncher>> Create(int device);
  ~CudaLauncher() override;

  absl::Status Launch(Kernel kernel, int64_t blocks, absl::Span<void* const> arguments,
                      Stream stream) override;

 private:
  CudaLauncher(const CudaDriver& driver, int device, CudaDriver::Context context);

  // Compiles and loads the kernels.
  absl::Status Load();

  const CudaDriver driver_;
  const int device_;
  const CudaDriver::Context context_;
  CudaDriver::Module module_ = nullptr;
  std::array<CudaDriver::Function, kKernelCount> functions_ = {};
};

}  // namespace torchps
