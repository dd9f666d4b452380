#include "worker/cuda/device_look.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "ATen/ops/zeros.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {
namespace {

std::vector<BlockRange> TrainedBlocks(const BlockMap& block_map) {
  std::vector<BlockRange> trained;
  std::copy_if(block_map.blocks().begin(), block_map.blocks().end(), std::back_inserter(trained),
               [](const BlockRange& block) { return !block.averaged; });
  return trained;
}

// Doubles of scratch memory, for the largest block.
int64_t ScratchSize(const std::vector<BlockRange>& blocks) {
  int64_t bytes = 0;
  for (const BlockRange& block : blocks) {
    bytes = std::max(bytes, GradientKernels::ScanScratchBytes(block.length));
  }
  constexpr auto kEach = static_cast<int64_t>(sizeof(double));
  return (bytes + kEach - 1) / kEach;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockLook>> DeviceLook::Create(const at::Tensor& gradients,
                                                              const BlockMap& block_map) {
  CurrentStream current_stream = CurrentStreamOf(gradients.device());
  if (current_stream == nullptr) {
    return absl::UnavailableError("this torch does not tell the driver's handle of a stream");
  }
  absl::StatusOr<std::unique_ptr<GradientKernels>> kernels =
      GradientKernels::Create(gradients.device().index());
  if (!kernels.ok()) return kernels.status();
  return std::make_unique<DeviceLook>(*std::move(kernels), gradients, block_map,
                                      std::move(current_stream));
}

DeviceLook::DeviceLook(std::unique_ptr<GradientKernels> kernels, const at::Tensor& gradients,
                       const BlockMap& block_map, CurrentStream current_stream)
    : kernels_(std::move(kernels)),
      current_stream_(std::move(current_stream)),
      blocks_(TrainedBlocks(block_map)),
      gradients_(gradients),
      verdicts_(
          at::zeros({static_cast<int64_t>(blocks_.size()) * kVerdictFloats}, gradients.options())),
      scratch_(at::zeros({ScratchSize(blocks_)}, gradients.options().dtype(at::kDouble))) {}

absl::Span<const float> DeviceLook::verdicts() const {
  return absl::MakeConstSpan(verdicts_.data_ptr<float>(), verdicts_.numel());
}

absl::Status DeviceLook::Look(BlockId id) {
  const BlockRange& block = blocks_[id];
  auto* const verdict =
      reinterpret_cast<GradientVerdict*>(verdicts_.data_ptr<float>() + id * kVerdictFloats);
  return kernels_->Scan(gradients_.data_ptr<float>() + block.offset, block.length, /*clip_norm=*/0,
                        scratch_.data_ptr(), verdict, current_stream_());
}

}  // namespace torchps
