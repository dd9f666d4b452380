#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "worker/replicas/local_group.h"

namespace torchps {

// A group that needs nothing but torch: the first device fetches the others' tensors, in their
// order, and adds them. On the CPU it adds in memory; between GPUs torch copies directly where the
// machine lets it. A device may be in the group more than once.
class HostGroup final : public LocalGroup {
 public:
  absl::Status Sum(absl::Span<const torch::Tensor> tensors) override;
  absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) override;
  absl::Status Copy(absl::Span<const torch::Tensor> tensors) override;
};

}  // namespace torchps
