#include "torchps/worker/cuda/device_encoder.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "torchps/common/check.h"
#include "torchps/transport/top_k.h"
#include "torchps/worker/cuda/device_kernels.h"
#include "torchps/worker/kernels/kernel_shapes.h"

namespace torchps {
namespace {

// Returns the scratch size that suffices for any trained block, in bytes.
int64_t ScratchBytes(const BlockMap& block_map, EncodingSpec::Kind kind) {
  const int64_t longest = LongestTrained(block_map);
  const int64_t scan = GradientKernels::ScanScratchBytes(longest);
  if (kind != EncodingSpec::TOP_K) return scan;
  return std::max(scan, GradientKernels::TopKScratchBytes(longest));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockEncoder>> DeviceEncoder::Create(const at::Tensor& gradients,
                                                                    const BlockMap& block_map,
                                                                    const EncodingSpec& encoding) {
  absl::StatusOr<DeviceKernels> device = DeviceKernels::Create(gradients.device());
  if (!device.ok()) return device.status();
  return std::make_unique<DeviceEncoder>(std::move(device->kernels), gradients, block_map, encoding,
                                         std::move(device->current_stream));
}

DeviceEncoder::DeviceEncoder(std::unique_ptr<GradientKernels> kernels, const at::Tensor& gradients,
                             const BlockMap& block_map, const EncodingSpec& encoding,
                             CurrentStream current_stream)
    : kernels_(std::move(kernels)),
      current_stream_(std::move(current_stream)),
      blocks_(block_map.blocks()),
      records_(block_map, encoding),
      gradients_(gradients),
      residual_(at::zeros_like(gradients)),
      memory_(at::zeros({records_.size()}, gradients.options())),
      scratch_(DoublesFor(ScratchBytes(block_map, encoding.kind()), gradients.device())) {
  TPS_CHECK(records_.encoding() != EncodingSpec::FLOAT32, "float32 loses nothing");
}

absl::Span<const float> DeviceEncoder::memory() const {
  return absl::MakeConstSpan(memory_.data_ptr<float>(), memory_.numel());
}

absl::Status DeviceEncoder::Encode(BlockId id, bool looks, absl::Span<const ElementRun> absent) {
  const BlockRange& block = blocks_[id];
  float* const record = memory_.data_ptr<float>() + records_.begin(id);
  GradientVerdict* verdict = nullptr;
  if (looks) {
    verdict = EncodedRecords::GetVerdict(record);
    const absl::Status status =
        kernels_->Scan(gradients_.data_ptr<float>() + block.offset, block.length,
                       /*clip_norm=*/0, scratch_.data_ptr(), verdict, current_stream_());
    if (!status.ok()) return status;
  }
  std::vector<at::Tensor> kept;
  for (const ElementRun& run : absent) {
    const at::Tensor rest = residual_.narrow(0, block.offset + run.begin, run.end - run.begin);
    kept.push_back(rest.clone());
    rest.zero_();
  }
  const absl::Status status = Keep(block, verdict, record);
  for (size_t i = 0; i < kept.size(); ++i) {
    const ElementRun& run = absent[i];
    residual_.narrow(0, block.offset + run.begin, run.end - run.begin).copy_(kept[i]);
  }
  return status;
}

absl::Status DeviceEncoder::Keep(const BlockRange& block, const GradientVerdict* verdict,
                                 float* record) {
  const float* const gradient = gradients_.data_ptr<float>() + block.offset;
  float* const residual = residual_.data_ptr<float>() + block.offset;
  uint8_t* const bytes = EncodedRecords::GetBytes(record);
  const GradientKernels::Stream stream = current_stream_();
  switch (records_.encoding()) {
    case EncodingSpec::BFLOAT16:
      return kernels_->KeepBfloat16(gradient, residual, block.length, verdict, bytes, stream);
    case EncodingSpec::INT8:
      return kernels_->KeepInt8(gradient, residual, block.length, verdict, bytes, stream);
    default:
      return kernels_->KeepTopK(gradient, residual, block.length,
                                TopKOf(block.length, records_.fraction()), verdict,
                                scratch_.data_ptr(), bytes, stream);
  }
}

absl::Status DeviceEncoder::TakeBack(BlockId id) {
  const BlockRange& block = blocks_[id];
  float* const residual = residual_.data_ptr<float>() + block.offset;
  const uint8_t* const bytes =
      EncodedRecords::GetBytes(memory_.data_ptr<float>() + records_.begin(id));
  const GradientKernels::Stream stream = current_stream_();
  switch (records_.encoding()) {
    case EncodingSpec::BFLOAT16:
      return kernels_->TakeBackBfloat16(bytes, block.length, residual, stream);
    case EncodingSpec::INT8:
      return kernels_->TakeBackInt8(bytes, block.length, residual, stream);
    default:
      return kernels_->TakeBackTopK(bytes, TopKOf(block.length, records_.fraction()), residual,
                                    stream);
  }
}

}  // namespace torchps
