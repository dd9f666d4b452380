#pragma once

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "worker/cuda/current_stream.h"
#include "worker/device/finite_check.h"
#include "worker/kernels/gradient_kernels.h"

namespace torchps {

// Checks gradient blocks on a GPU with the kernels of worker/kernels.
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
