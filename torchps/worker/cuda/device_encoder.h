#pragma once

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/cuda/device_copies.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/kernels/gradient_kernels.h"

namespace torchps {

// Encodes gradient blocks on a GPU with the kernels of torchps/worker/kernels. Uses one float of
// device memory for each trained element, plus the encoded bytes.
//
// Thread-compatible. Any function may throw c10::Error.
class DeviceEncoder final : public BlockEncoder {
 public:
  // Makes an encoder for gradients stored in one GPU vector. Compiles the kernels in about a
  // second. UNAVAILABLE: torch or this machine lacks something the kernels need. INTERNAL: the
  // device failed.
  static absl::StatusOr<std::unique_ptr<BlockEncoder>> Create(const at::Tensor& gradients,
                                                              const BlockMap& block_map,
                                                              const EncodingSpec& encoding);

  // REQUIRES: `encoding` is normalized and not FLOAT32.
  DeviceEncoder(std::unique_ptr<GradientKernels> kernels, const at::Tensor& gradients,
                const BlockMap& block_map, const EncodingSpec& encoding,
                CurrentStream current_stream);

  const EncodedRecords& records() const override { return records_; }
  absl::Span<const float> memory() const override;
  absl::Status Encode(BlockId block, bool looks, absl::Span<const ElementRun> absent) override;
  absl::Status TakeBack(BlockId block) override;

  // Returns the accumulated encoding error of all trained elements.
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
