#include <exception>
#include <utility>
#include <vector>

#include "program/train.h"
#include "program/worker_program.h"
#include "worker/replicas/compute_on_devices.h"
#include "worker/replicas/replica_tasks.h"
#include "worker/run_worker.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

absl::StatusOr<Task> MakeTask(const TaskFactory& factory, const JobSpec& job) {
  try {
    absl::StatusOr<Task> task = factory(job);
    if (task.ok() && !task->status().ok()) return task->status();
    return task;
  } catch (const std::exception& error) {
    // The job and its data make it fail, so it would fail again.
    return absl::InvalidArgumentError(TorchError("making the task", error).message());
  }
}

// Several devices are for the stages of a module that has them, else for replicas of it.
absl::Status PlaceStages(const torch::nn::Module& module, WorkerOptions* options) {
  const bool has_stages = dynamic_cast<const StagesImpl*>(&module) != nullptr;
  if (has_stages && !options->further_devices.empty()) {
    options->stage_devices = std::exchange(options->further_devices, {});
    options->stage_devices.insert(options->stage_devices.begin(), options->device);
  }
  if (options->micro_batches == 0 || !options->stage_devices.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--micro_batches belongs to a module in stages; name a --device for each stage, as "
      "--device=cuda:0,cuda:1");
}

}  // namespace

int TrainMain(int argc, char** argv, const TaskFactory& factory) {
  WorkerProgram program;
  program.train = [&factory](const JobSpec& job, const Connect& connect) -> absl::Status {
    const absl::StatusOr<Task> task = MakeTask(factory, job);
    if (!task.ok()) return task.status();
    absl::StatusOr<WorkerOptions> options = connect();
    if (!options.ok()) return options.status();
    if (absl::Status status = PlaceStages(task->module(), &*options); !status.ok()) return status;
    const DeviceList further = options->further_devices;
    if (further.empty()) return RunWorker(*task, *std::move(options));
    absl::StatusOr<std::vector<Task>> replicas = MakeReplicaTasks(
        *task, [&] { return MakeTask(factory, job); }, job.seed(), options->device, further);
    if (!replicas.ok()) return replicas.status();
    return RunWorker(*task, *std::move(options), ComputeOnDevices(*std::move(replicas), further));
  };
  program.look = [&factory](const JobSpec& job, const ModelLook& look) -> absl::Status {
    const absl::StatusOr<Task> task = MakeTask(factory, job);
    return task.ok() ? LookAtModel(*task, look) : task.status();
  };
  program.watch = [&factory](const JobSpec& job, const WatchOptions& options) -> absl::Status {
    const absl::StatusOr<Task> task = MakeTask(factory, job);
    return task.ok() ? WatchJob(*task, job, options) : task.status();
  };
  return RunWorkerProgram(argc, argv, program);
}

}  // namespace torchps
