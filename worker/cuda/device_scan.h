#pragma once

#include <memory>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/cuda/current_stream.h"
#include "worker/gradient/gradient_scan.h"
#include "worker/kernels/gradient_kernels.h"

namespace torchps {

// ScanGradient() and ClipGradient() where the device has the gradient, to the same bits: the norm,
// whether all is finite, and clipping. Torch's sums have no fixed order.
//
// Thread-compatible. All functions throw what torch throws.
class DeviceScan {
 public:
  // For gradients of so many elements on a GPU. Compiles the kernels, which takes about a second.
  // UNAVAILABLE: this torch, or what is installed here, lacks what it needs. INTERNAL: the device
  // has failed.
  static absl::StatusOr<std::unique_ptr<DeviceScan>> Create(c10::Device device, int64_t elements);

  DeviceScan(std::unique_ptr<GradientKernels> kernels, c10::Device device, int64_t elements,
             CurrentStream current_stream);

  // Looks at `gradients`, on the calling thread's current stream, and clips them to `clip_norm` if
  // all are finite; 0 clips nothing. Waits for what it tells, not for the clipping, after which the
  // stream goes on. INTERNAL: the device has failed. REQUIRES: as many elements as it was made for.
  absl::StatusOr<GradientScan> ScanAndClip(const at::Tensor& gradients, double clip_norm);

 private:
  const std::unique_ptr<GradientKernels> kernels_;
  const CurrentStream current_stream_;
  const int64_t elements_;
  const at::Tensor scratch_, verdict_;
};

}  // namespace torchps
