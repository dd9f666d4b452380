#pragma once

#include <vector>

#include "worker/device.h"
#include "worker/slot/run_worker.h"
#include "worker/task.h"

namespace torchps {

// For RunWorker(): the task's module and those of `further` tasks, which compute on `devices`, as
// one ReplicaGroup (worker/replicas/replica_group.h).
MakeCompute ComputeOnDevices(std::vector<Task> further, DeviceList devices);

}  // namespace torchps
