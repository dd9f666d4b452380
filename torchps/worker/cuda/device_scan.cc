#include "torchps/worker/cuda/device_scan.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "torchps/common/check.h"
#include "torchps/worker/cuda/device_kernels.h"
#include "torchps/worker/kernels/kernel_shapes.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<DeviceScan>> DeviceScan::Create(c10::Device device,
                                                               int64_t elements) {
  absl::StatusOr<DeviceKernels> made = DeviceKernels::Create(device);
  if (!made.ok()) return made.status();
  return std::make_unique<DeviceScan>(std::move(made->kernels), device, elements,
                                      std::move(made->current_stream));
}

DeviceScan::DeviceScan(std::unique_ptr<GradientKernels> kernels, c10::Device device,
                       int64_t elements, CurrentStream current_stream)
    : kernels_(std::move(kernels)),
      current_stream_(std::move(current_stream)),
      elements_(elements),
      scratch_(DoublesFor(GradientKernels::ScanScratchBytes(elements), device)),
      verdict_(DoublesFor(sizeof(GradientVerdict), device)) {}

absl::StatusOr<GradientScan> DeviceScan::ScanAndClip(const at::Tensor& gradients,
                                                     double clip_norm) {
  TPS_CHECK(gradients.numel() == elements_, "a gradient of another length");
  const GradientKernels::Stream stream = current_stream_();
  auto* const verdict = static_cast<GradientVerdict*>(verdict_.data_ptr());
  absl::Status status = kernels_->Scan(gradients.data_ptr<float>(), elements_, clip_norm,
                                       scratch_.data_ptr(), verdict, stream);
  if (status.ok() && clip_norm > 0) {
    status = kernels_->Scale(gradients.data_ptr<float>(), elements_, verdict, stream);
  }
  if (!status.ok()) return status;
  // Copies on the current stream, so after the kernels, and waits for the copy.
  const at::Tensor host = verdict_.to(at::kCPU);
  GradientVerdict found;
  std::memcpy(&found, host.data_ptr(), sizeof(found));
  return GradientScan{found.finite != 0, found.norm};
}

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
