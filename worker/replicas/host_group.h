#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "worker/replicas/local_group.h"

namespace torchps {

// Sums and copies tensors with torch only. The first device fetches the other tensors in order and
// adds them. On the CPU it adds in memory. Between GPUs, torch copies directly if the machine
// supports it. The group may contain a device more than once.
class HostGroup final : public LocalGroup {
 public:
  absl::Status Sum(absl::Span<const torch::Tensor> tensors) override;
  absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) override;
  absl::Status Copy(absl::Span<const torch::Tensor> tensors) override;
};

}  // namespace torchps
