#include "torchps/worker/cuda/device_kernels.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"

namespace torchps {

absl::StatusOr<DeviceKernels> DeviceKernels::Create(c10::Device device) {
  CurrentStream current_stream = GetCurrentStream(device);
  if (current_stream == nullptr) {
    return absl::UnavailableError("this torch does not tell the driver's handle of a stream");
  }
  absl::StatusOr<std::unique_ptr<GradientKernels>> kernels =
      GradientKernels::Create(device.index());
  if (!kernels.ok()) return kernels.status();
  return DeviceKernels{*std::move(kernels), std::move(current_stream)};
}

at::Tensor DoublesFor(int64_t bytes, c10::Device device) {
  constexpr auto kEach = static_cast<int64_t>(sizeof(double));
  return at::empty({(bytes + kEach - 1) / kEach},
                   at::TensorOptions().dtype(at::kDouble).device(device));
}

int64_t LongestTrained(const BlockMap& block_map) {
  int64_t longest = 0;
  for (const BlockRange& block : block_map.blocks()) {
    if (!block.averaged) longest = std::max(longest, block.length);
  }
  return longest;
}

}  // namespace torchps
