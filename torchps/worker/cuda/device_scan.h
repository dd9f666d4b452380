#pragma once

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "torchps/common/block_map.h"
#include "torchps/common/types.h"
#include "torchps/worker/cuda/device_copies.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/gradient/gradient_scan.h"
#include "torchps/worker/kernels/gradient_kernels.h"

namespace torchps {

// Runs ScanGradient() and ClipGradient() on the device. The result has the same bits as on the
// host. Does not use torch's sums, because their order is not fixed.
//
// Thread-compatible. Any function may throw c10::Error.
class DeviceScan {
 public:
  // Makes a scan for gradients of `elements` elements on a GPU. Compiles the kernels in about a
  // second. UNAVAILABLE: torch or this machine lacks something the kernels need. INTERNAL: the
  // device failed.
  static absl::StatusOr<std::unique_ptr<DeviceScan>> Create(c10::Device device, int64_t elements);

  DeviceScan(std::unique_ptr<GradientKernels> kernels, c10::Device device, int64_t elements,
             CurrentStream current_stream);

  // Scans `gradients` on the calling thread's current stream, and clips them to `clip_norm` if they
  // are finite; 0 disables clipping. Blocks until the scan result reaches the host. INTERNAL: the
  // device failed. REQUIRES: `gradients` has `elements` elements.
  absl::StatusOr<GradientScan> ScanAndClip(const at::Tensor& gradients, double clip_norm);

 private:
  const std::unique_ptr<GradientKernels> kernels_;
  const CurrentStream current_stream_;
  const int64_t elements_;
  const at::Tensor scratch_, verdict_;
};

// Checks gradient blocks on a GPU with the kernels of torchps/worker/kernels.
//
// Thread-compatible. Any function may throw c10::Error.
class CudaFiniteCheck final : public FiniteCheck {
 public:
  // Makes a check for gradients stored in one GPU vector. Compiles the kernels in about a second.
  // UNAVAILABLE: torch or this machine lacks something the kernels need. INTERNAL: the device
  // failed.
  static absl::StatusOr<std::unique_ptr<FiniteCheck>> Create(const at::Tensor& gradients,
                                                             const BlockMap& block_map);

  CudaFiniteCheck(std::unique_ptr<GradientKernels> kernels, const at::Tensor& gradients,
                  const BlockMap& block_map, CurrentStream current_stream);

  absl::Span<const float> verdicts() const override;
  absl::Status Look(BlockId block) override;

 private:
  const std::unique_ptr<GradientKernels> kernels_;
  const CurrentStream current_stream_;
  // Trained blocks.
  const std::vector<BlockRange> blocks_;
  const at::Tensor gradients_, verdicts_, scratch_;
};

}  // namespace torchps
