#include "worker/cuda/cuda_finite_check.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "ATen/ops/zeros.h"
#include "worker/cuda/device_kernels.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {
namespace {

std::vector<BlockRange> TrainedBlocks(const BlockMap& block_map) {
  std::vector<BlockRange> trained;
  std::copy_if(block_map.blocks().begin(), block_map.blocks().end(), std::back_inserter(trained),
               [](const BlockRange& block) { return !block.averaged; });
  return trained;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FiniteCheck>> CudaFiniteCheck::Create(const at::Tensor& gradients,
                                                                     const BlockMap& block_map) {
  absl::StatusOr<DeviceKernels> device = DeviceKernels::Create(gradients.device());
  if (!device.ok()) return device.status();
  return std::make_unique<CudaFiniteCheck>(std::move(device->kernels), gradients, block_map,
                                           std::move(device->current_stream));
}

CudaFiniteCheck::CudaFiniteCheck(std::unique_ptr<GradientKernels> kernels,
                                 const at::Tensor& gradients, const BlockMap& block_map,
                                 CurrentStream current_stream)
    : kernels_(std::move(kernels)),
      current_stream_(std::move(current_stream)),
      blocks_(TrainedBlocks(block_map)),
      gradients_(gradients),
      verdicts_(
          at::zeros({static_cast<int64_t>(blocks_.size()) * kVerdictFloats}, gradients.options())),
      scratch_(DoublesFor(GradientKernels::ScanScratchBytes(LongestTrained(block_map)),
                          gradients.device())) {}

absl::Span<const float> CudaFiniteCheck::verdicts() const {
  return absl::MakeConstSpan(verdicts_.data_ptr<float>(), verdicts_.numel());
}

absl::Status CudaFiniteCheck::Look(BlockId id) {
  const BlockRange& block = blocks_[id];
  auto* const verdict =
      reinterpret_cast<GradientVerdict*>(verdicts_.data_ptr<float>() + id * kVerdictFloats);
  return kernels_->Scan(gradients_.data_ptr<float>() + block.offset, block.length, /*clip_norm=*/0,
                        scratch_.data_ptr(), verdict, current_stream_());
}

}  // namespace torchps
