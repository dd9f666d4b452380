#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/worker/device.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/task.h"

namespace torchps {

// Returns the compute factory for RunWorker() that trains the task's module and the modules of
// `further` tasks on `devices`, as one ReplicaGroup (torchps/worker/replicas/replica_group.h).
MakeCompute ComputeOnDevices(std::vector<Task> further, DeviceList devices);

// Returns tasks for further replicas of `lead`, one on each of `devices`, with separate modules and
// the lead's datasets. `make` is the factory that made `lead`. It is called once for each of
// `devices`, with torch seeded with `seed` and with that device as the current one. If `make` is
// null or returns the lead's module, the lead's module is cloned. The modules' state is copied from
// the lead's module.
//
// INVALID_ARGUMENT: the module cannot be cloned, or `make` returned a module with other tensors.
// Also returns errors of `make`. INTERNAL: a device is not available.
absl::StatusOr<std::vector<Task>> MakeReplicaTasks(
    const Task& lead, const std::function<absl::StatusOr<Task>()>& make, uint64_t seed,
    torch::Device lead_device, const DeviceList& devices);

// Copies each parameter and buffer from `from` to `to`, across devices. INVALID_ARGUMENT names a
// tensor that is missing on one side or differs in shape.
absl::Status CopyState(const torch::nn::Module& from, torch::nn::Module& to);

}  // namespace torchps
