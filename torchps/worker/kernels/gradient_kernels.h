#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/worker/kernels/kernel_launcher.h"
#include "torchps/worker/kernels/kernel_shapes.h"

namespace torchps {

// Scans, clips and encodes a gradient on the GPU before it is pushed. The results have the same
// bits as torchps/worker/gradient/gradient_scan.h and torchps/transport/residual_encoding.h on the
// host, except for NaN payloads.
//
// Pointers refer to device memory. Each call queues kernels on a stream and returns without
// waiting. The memory must stay valid until the kernels end. Thread-safe, but only one call at a
// time may use a scratch buffer. Element counts must be positive.
//
// Any call may return INTERNAL: the device rejects a kernel.
class GradientKernels {
 public:
  using Stream = KernelLauncher::Stream;

  explicit GradientKernels(std::unique_ptr<KernelLauncher> launcher)
      : launcher_(std::move(launcher)) {}

  // Makes the kernels for the GPU with CUDA's index `device`, which torch also uses. Compiles the
  // kernels, which takes about a second. UNAVAILABLE: the compiler or the driver is missing, so the
  // host must do the work. INTERNAL: the kernels do not compile or the GPU rejects them.
  static absl::StatusOr<std::unique_ptr<GradientKernels>> Create(int device);

  // Return the scratch size in bytes. The scratch memory must be aligned for doubles.
  static int64_t ScanScratchBytes(int64_t elements);
  static int64_t TopKScratchBytes(int64_t elements);

  // Computes the norm of `elements`, checks that they are finite, and finds the factor that limits
  // the norm to `clip_norm`; 0 disables clipping. Writes the results to `verdict`.
  absl::Status Scan(const float* elements, int64_t count, double clip_norm, void* scratch,
                    GradientVerdict* verdict, Stream stream);
  // Multiplies `elements` by the factor in `verdict`, which an earlier kernel on the stream writes.
  absl::Status Scale(float* elements, int64_t count, const GradientVerdict* verdict, Stream stream);

  // Error feedback: adds `gradient` to `residual`, writes the encoded sum to `bytes`, and keeps the
  // encoding error in `residual`. `bytes` must be aligned to 2 bytes, or to 4 for INT8 and TOP_K.
  // Does nothing if `verdict`, from an earlier Scan() on the stream, reports a gradient that is not
  // finite. REQUIRES: the gradient is finite, if `verdict` is null. The bytes are undefined if this
  // is violated.
  absl::Status KeepBfloat16(const float* gradient, float* residual, int64_t count,
                            const GradientVerdict* verdict, uint8_t* bytes, Stream stream);
  absl::Status KeepInt8(const float* gradient, float* residual, int64_t count,
                        const GradientVerdict* verdict, uint8_t* bytes, Stream stream);
  // REQUIRES: 1 <= k <= count < 2^32.
  absl::Status KeepTopK(const float* gradient, float* residual, int64_t count, int64_t k,
                        const GradientVerdict* verdict, void* scratch, uint8_t* bytes,
                        Stream stream);

  // Decode bytes that were sent but not applied, and add them to `residual`.
  absl::Status TakeBackBfloat16(const uint8_t* bytes, int64_t count, float* residual,
                                Stream stream);
  absl::Status TakeBackInt8(const uint8_t* bytes, int64_t count, float* residual, Stream stream);
  absl::Status TakeBackTopK(const uint8_t* bytes, int64_t k, float* residual, Stream stream);

 private:
  template <typename... Arguments>
  absl::Status Launch(Kernel kernel, int64_t blocks, Stream stream, Arguments... arguments);

  const std::unique_ptr<KernelLauncher> launcher_;
};

}  // namespace torchps
