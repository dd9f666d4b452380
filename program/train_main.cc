#include <exception>

#include "program/train.h"
#include "program/worker_program.h"
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

}  // namespace

int TrainMain(int argc, char** argv, const TaskFactory& factory) {
  WorkerProgram program;
  program.train = [&factory](const JobSpec& job, const Connect& connect) -> absl::Status {
    const absl::StatusOr<Task> task = MakeTask(factory, job);
    if (!task.ok()) return task.status();
    absl::StatusOr<WorkerOptions> options = connect();
    if (!options.ok()) return options.status();
    return RunWorker(*task, *std::move(options));
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
