#pragma once

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/kernels/kernel_launcher.h"

namespace torchps {

// The driver's functions that are needed, by the types of cuda.h. Each gives 0 where all is well.
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

// Runs the kernels on a GPU, in the context that torch uses there. Compiled by NVRTC and loaded by
// the driver, both found at run time, so that building needs nothing of CUDA's.
//
// Thread-safe; a calling thread's current context stays as it is. Ends after the kernels that it
// was given are done.
class CudaLauncher final : public KernelLauncher {
 public:
  // UNAVAILABLE: no driver or no NVRTC is here. INTERNAL: what one of them has said.
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
