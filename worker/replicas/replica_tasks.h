#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device.h"
#include "worker/task.h"

namespace torchps {

// What further replicas of `lead` train, one on each of `devices`: tasks with modules of their own,
// on the lead's datasets. `make` is what has made `lead`, called again with torch's seed as it was
// then, on the device that is current; where it gives the lead's own module, and where it is null,
// the lead's is cloned. All that the modules hold is a copy of what the lead's holds.
//
// INVALID_ARGUMENT: the module cannot be cloned, or `make` has made another one; the error of
// `make`. INTERNAL: a device cannot be taken.
absl::StatusOr<std::vector<Task>> MakeReplicaTasks(
    const Task& lead, const std::function<absl::StatusOr<Task>()>& make, uint64_t seed,
    torch::Device lead_device, const DeviceList& devices);

// Every parameter and buffer of `to` becomes what that of `from` is, wherever it lies.
// INVALID_ARGUMENT names one that only one side has, or has in another shape.
absl::Status CopyState(const torch::nn::Module& from, torch::nn::Module& to);

}  // namespace torchps
