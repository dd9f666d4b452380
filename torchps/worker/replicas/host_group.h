#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "torchps/worker/device.h"

namespace torchps {

// Sums and copies tensors across several devices of one process. `tensors` contains one tensor per
// participating replica, in replica order. All are contiguous, with the same length and type, each
// on the replica's device. The functions return when the work is queued on the devices. Later work
// on a device's current stream sees the results.
//
// Calls must not overlap. INTERNAL: torch or a device failed.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;

  // Sets the first tensor to the sum of the tensors. The contents of the other tensors are
  // unspecified afterwards.
  virtual absl::Status Sum(absl::Span<const torch::Tensor> tensors) = 0;
  // Sets each tensor to the sum of the tensors, bit-identical on each device.
  virtual absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) = 0;
  // Copies the first tensor to the other tensors.
  virtual absl::Status Copy(absl::Span<const torch::Tensor> tensors) = 0;

  // Cancels queued operations that wait for other devices, because a failed replica may never
  // participate and they would wait forever. Later calls may fail.
  virtual void Abandon() {}
};

// Creates a group with one replica on each of `devices`. Uses NCCL if the devices are different
// GPUs and this process contains NCCL; otherwise torch copies. INTERNAL: NCCL does not start.
absl::StatusOr<std::unique_ptr<LocalGroup>> MakeLocalGroup(const DeviceList& devices);

// Sums and copies tensors with torch only. The first device fetches the other tensors in order and
// adds them. Tensors on the first device are added without a copy. Between GPUs, torch copies
// directly if the machine supports it. The group may contain a device more than once.
class HostGroup final : public LocalGroup {
 public:
  absl::Status Sum(absl::Span<const torch::Tensor> tensors) override;
  absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) override;
  absl::Status Copy(absl::Span<const torch::Tensor> tensors) override;
};

}  // namespace torchps
