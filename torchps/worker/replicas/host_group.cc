#include "torchps/worker/replicas/host_group.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "torch/utils.h"
#include "torchps/worker/replicas/nccl_group.h"
#include "torchps/worker/torch_error.h"

namespace torchps {

namespace {

bool AreDifferentGpus(const DeviceList& devices) {
  std::vector<std::string> names;
  for (const torch::Device& device : devices) {
    if (!device.is_cuda()) return false;
    names.push_back(device.str());
  }
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeLocalGroup(const DeviceList& devices) {
  if (!AreDifferentGpus(devices)) return std::make_unique<HostGroup>();
  const absl::StatusOr<Nccl> nccl = FindNccl();
  if (!nccl.ok()) return std::make_unique<HostGroup>();
  absl::StatusOr<std::unique_ptr<NcclGroup>> group = NcclGroup::Create(*nccl, devices);
  if (!group.ok()) return group.status();
  return *std::move(group);
}

namespace {

// The maximum number of elements of another device's tensor that are on the first device at a time:
// 64 MiB of float32.
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
