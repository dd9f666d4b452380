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

// The look of a GPU, by the kernels of worker/kernels.
//
// Thread-compatible. All functions throw what torch throws.
class CudaFiniteCheck final : public FiniteCheck {
 public:
  // At gradients that lie in one vector on a GPU. Compiles the kernels, which takes about a second.
  // UNAVAILABLE: this torch, or what is installed here, lacks what it needs. INTERNAL: the device
  // has failed.
  static absl::StatusOr<std::unique_ptr<FiniteCheck>> Create(const at::Tensor& gradients,
                                                             const BlockMap& block_map);

  CudaFiniteCheck(std::unique_ptr<GradientKernels> kernels, const at::Tensor& gradients,
                  const BlockMap& block_map, CurrentStream current_stream);

  absl::Span<const float> verdicts() const override;
  absl::Status Look(BlockId block) override;

 private:
  const std::unique_ptr<GradientKernels> kernels_;
  const CurrentStream current_stream_;
  // The trained ones.
  const std::vector<BlockRange> blocks_;
  const at::Tensor gradients_, verdicts_, scratch_;
};

}  // namespace torchps
