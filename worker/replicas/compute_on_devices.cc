#include "worker/replicas/compute_on_devices.h"

#include <memory>
#include <utility>

#include "worker/replicas/replica_group.h"

namespace torchps {

MakeCompute ComputeOnDevices(std::vector<Task> further, DeviceList devices) {
  return [further = std::move(further), devices = std::move(devices)](
             const Task& task, const Learner::Options& learning,
             WorkerSlot* slot) -> absl::StatusOr<ComputeGradient> {
    ReplicaGroup::Options options;
    options.learning = learning;
    options.seed = slot->job().seed() + static_cast<uint64_t>(slot->slot()) + 1;
    absl::StatusOr<std::unique_ptr<ReplicaGroup>> group =
        ReplicaGroup::Create(task, slot->model(), further, devices, std::move(options));
    if (!group.ok()) return group.status();
    const std::shared_ptr<ReplicaGroup> replicas = *std::move(group);
    return ComputeGradient([replicas](const StepWork& step, Learner::Observer* observer) {
      return replicas->Compute(step, observer);
    });
  };
}

}  // namespace torchps
