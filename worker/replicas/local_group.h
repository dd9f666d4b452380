#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "worker/device.h"

namespace torchps {

// Adds up and copies tensors of several devices of one process. `tensors` has one for each replica
// that takes part, in their order, contiguous, of one length and type, each on its own device. All
// return when the work is in the devices' queues: what is given to a device afterwards, on its
// current stream, sees the results.
//
// No two calls at once. INTERNAL: torch or a device has failed.
class LocalGroup {
 public:
  virtual ~LocalGroup() = default;

  // The first tensor becomes the sum of all; the others may be anything.
  virtual absl::Status Sum(absl::Span<const torch::Tensor> tensors) = 0;
  // Every tensor becomes the sum of all, the same to the bit.
  virtual absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) = 0;
  // Every tensor becomes what the first one is.
  virtual absl::Status Copy(absl::Span<const torch::Tensor> tensors) = 0;

  // A replica has failed, so what the other devices are to exchange with its own may never come:
  // ends what waits for that in their queues, where they would wait for ever. Later calls may fail.
  virtual void Abandon() {}
};

// For one replica on each of `devices`: of NCCL's where all are different GPUs and this process has
// NCCL, else one that copies. INTERNAL: NCCL does not start.
absl::StatusOr<std::unique_ptr<LocalGroup>> MakeLocalGroup(const DeviceList& devices);

}  // namespace torchps
