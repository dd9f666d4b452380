#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kernels/kernel_launcher.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {

// What is done to a gradient before it is pushed, on the GPU that has it: the same bits as
// worker/gradient/gradient_scan.h and wire/residual_encoding.h give on the host. Only which NaN
// comes of one may differ.
//
// All pointers are the device's. A call puts kernels into a stream and does not wait for them, and
// what it is given stays until they are done. Thread-safe, but scratch memory is one call's at a
// time. Every number of elements is above 0.
//
// Errors of all calls: INTERNAL, the device refuses a kernel.
class GradientKernels {
 public:
  using Stream = KernelLauncher::Stream;

  explicit GradientKernels(std::unique_ptr<KernelLauncher> launcher)
      : launcher_(std::move(launcher)) {}

  // Of the GPU that CUDA, and torch, give the index `device`. Compiles the kernels, which takes
  // about a second. UNAVAILABLE: what compiles them or the driver is not here, so the host has to
  // do the work. INTERNAL: they do not compile, or the GPU does not take them.
  static absl::StatusOr<std::unique_ptr<GradientKernels>> Create(int device);

  // Bytes of scratch memory, aligned for doubles.
  static int64_t ScanScratchBytes(int64_t elements);
  static int64_t TopKScratchBytes(int64_t elements);

  // The norm of `elements`, whether all are finite, and by what they are to be multiplied so that
  // the norm is at most `clip_norm`; 0 clips nothing.
  absl::Status Scan(const float* elements, int64_t count, double clip_norm, void* scratch,
                    GradientVerdict* verdict, Stream stream);
  // Multiplies `elements` by the verdict's factor, which an earlier kernel of the stream finds.
  absl::Status Scale(float* elements, int64_t count, const GradientVerdict* verdict, Stream stream);

  // Error feedback: adds `gradient` to `residual`, writes to `bytes` what is sent of the sum, and
  // leaves in `residual` what is not. `bytes` is aligned for what the encoding consists of: 2
  // bytes, or 4 for INT8 and TOP_K. Does nothing where `verdict`, an earlier Scan() of the
  // stream's, is that the gradient is not finite; null: nobody has looked. REQUIRES: every other
  // number is finite; else what is sent is not defined.
  absl::Status KeepBfloat16(const float* gradient, float* residual, int64_t count,
                            const GradientVerdict* verdict, uint8_t* bytes, Stream stream);
  absl::Status KeepInt8(const float* gradient, float* residual, int64_t count,
                        const GradientVerdict* verdict, uint8_t* bytes, Stream stream);
  // REQUIRES: 1 <= k <= count < 2^32.
  absl::Status KeepTopK(const float* gradient, float* residual, int64_t count, int64_t k,
                        const GradientVerdict* verdict, void* scratch, uint8_t* bytes,
                        Stream stream);

  // Adds to `residual` what the bytes of one of those stand for: it was sent, and not applied.
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
