#include "worker/replicas/host_group.h"

#include <algorithm>
#include <cstdint>
#include <exception>

#include "torch/utils.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

// Maximum part of another device's tensor held on the first device: 64 MiB of float32.
constexpr int64_t kPieceElements = int64_t{1} << 24;

void Add(const torch::Tensor& sum, const torch::Tensor& other) {
  if (sum.device() == other.device()) {
    sum.add_(other);
    return;
  }
  for (int64_t begin = 0; begin < sum.numel(); begin += kPieceElements) {
    const int64_t length = std::min(kPieceElements, sum.numel() - begin);
    sum.view(-1)
        .narrow(0, begin, length)
        .add_(other.view(-1).narrow(0, begin, length).to(sum.device()));
  }
}

}  // namespace

absl::Status HostGroup::Sum(absl::Span<const torch::Tensor> tensors) {
  try {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& other : tensors.subspan(1)) Add(tensors.front(), other);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return TorchError("adding up the devices' tensors", error);
  }
}

absl::Status HostGroup::Copy(absl::Span<const torch::Tensor> tensors) {
  try {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& other : tensors.subspan(1)) other.copy_(tensors.front());
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return TorchError("copying a tensor to the devices", error);
  }
}

absl::Status HostGroup::SumToAll(absl::Span<const torch::Tensor> tensors) {
  if (absl::Status status = Sum(tensors); !status.ok()) return status;
  return Copy(tensors);
}

}  // namespace torchps
