#pragma once

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "proto/job.pb.h"
#include "worker/cuda/current_stream.h"
#include "worker/device/block_encoder.h"
#include "worker/device/encoded_records.h"
#include "worker/kernels/gradient_kernels.h"

namespace torchps {

// The encoder of a GPU, by the kernels of worker/kernels. Costs the device a float per trained
// element, and the encoded bytes.
//
// Thread-compatible. All functions throw what torch throws.
class DeviceEncoder final : public BlockEncoder {
 public:
  // For gradients that lie in one vector on a GPU. Compiles the kernels, which takes about a
  // second. UNAVAILABLE: this torch, or what is installed here, lacks what it needs. INTERNAL: the
  // device has failed.
  static absl::StatusOr<std::unique_ptr<BlockEncoder>> Create(const at::Tensor& gradients,
                                                              const BlockMap& block_map,
                                                              const EncodingSpec& encoding);

  // REQUIRES: `encoding` is normalised and not FLOAT32.
  DeviceEncoder(std::unique_ptr<GradientKernels> kernels, const at::Tensor& gradients,
                const BlockMap& block_map, const EncodingSpec& encoding,
                CurrentStream current_stream);

  const EncodedRecords& records() const override { return records_; }
  absl::Span<const float> memory() const override;
  absl::Status Encode(BlockId block, bool looks, absl::Span<const ElementRun> absent) override;
  absl::Status TakeBack(BlockId block) override;

  // What the encoding has taken from the gradients so far, of all trained elements.
  const at::Tensor& residual() const { return residual_; }

 private:
  absl::Status Keep(const BlockRange& block, const GradientVerdict* verdict, float* record);

  const std::unique_ptr<GradientKernels> kernels_;
  const CurrentStream current_stream_;
  const std::vector<BlockRange> blocks_;
  const EncodedRecords records_;
  const at::Tensor gradients_, residual_, memory_, scratch_;
};

}  // namespace torchps
