#include "torchps/worker/replicas/replica_tasks.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/worker/replicas/replica_group.h"
#include "torchps/worker/torch_error.h"

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

namespace {

using Named = torch::OrderedDict<std::string, torch::Tensor>;

absl::Status Differs(const std::string& name, const char* how) {
  return absl::InvalidArgumentError(absl::StrCat("the module made for another device ", how, " '",
                                                 name, "'; expected the same module each time"));
}

absl::Status CopyNamed(const Named& from, const Named& to) {
  for (const auto& item : to) {
    if (!from.contains(item.key())) return Differs(item.key(), "has an additional tensor");
  }
  for (const auto& item : from) {
    const torch::Tensor* const other = to.find(item.key());
    if (other == nullptr || other->defined() != item.value().defined()) {
      return Differs(item.key(), "lacks");
    }
    if (!other->defined()) continue;
    if (other->sizes() != item.value().sizes()) {
      return Differs(item.key(), "has a different shape for");
    }
    other->copy_(item.value());
  }
  return absl::OkStatus();
}

absl::StatusOr<Task> GetClone(const Task& lead) {
  try {
    return lead.Clone();
  } catch (...) {
    return absl::InvalidArgumentError(
        absl::StrCat("each device needs a separate module, but there is only one: ",
                     ThrownError("cloning it").message(),
                     "; have the factory make a new module whenever it is called, or make it a "
                     "torch::nn::Cloneable"));
  }
}

absl::StatusOr<Task> MakeReplicaTask(const Task& lead,
                                     const std::function<absl::StatusOr<Task>()>& make,
                                     uint64_t seed) {
  if (make == nullptr) return GetClone(lead);
  torch::manual_seed(seed);
  absl::StatusOr<Task> task = make();
  if (!task.ok()) return task;
  return &task->module() == &lead.module() ? GetClone(lead) : task;
}

}  // namespace

absl::Status CopyState(const torch::nn::Module& from, torch::nn::Module& to) {
  try {
    const torch::NoGradGuard no_grad;
    absl::Status status = CopyNamed(from.named_parameters(), to.named_parameters());
    if (status.ok()) status = CopyNamed(from.named_buffers(), to.named_buffers());
    return status;
  } catch (...) {
    return ThrownError("copying a module's values");
  }
}

absl::StatusOr<std::vector<Task>> MakeReplicaTasks(
    const Task& lead, const std::function<absl::StatusOr<Task>()>& make, uint64_t seed,
    torch::Device lead_device, const DeviceList& devices) {
  std::vector<Task> tasks;
  for (const torch::Device& device : devices) {
    if (absl::Status status = UseDevice(device); !status.ok()) return status;
    absl::StatusOr<Task> task = MakeReplicaTask(lead, make, seed);
    if (!task.ok()) return task.status();
    if (absl::Status same = CopyState(lead.module(), task->module()); !same.ok()) return same;
    tasks.push_back(task->GetWithData(lead));
  }
  if (absl::Status status = UseDevice(lead_device); !status.ok()) return status;
  return tasks;
}

}  // namespace torchps
