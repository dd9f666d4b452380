#pragma once

#include <vector>

#include "worker/device.h"
#include "worker/slot/run_worker.h"
#include "worker/task.h"

namespace torchps {

// Returns the compute factory for RunWorker() that trains the task's module and the modules of
// `further` tasks on `devices`, as one ReplicaGroup (worker/replicas/replica_group.h).
MakeCompute ComputeOnDevices(std::vector<Task> further, DeviceList devices);

}  // namespace torchps
