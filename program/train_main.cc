#include <exception>

#include "program/train.h"
#include "program/worker_program.h"
#include "worker/run_worker.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

absl::StatusOr<Task> MakeTask(const TaskFactory& factory, const JobSpec& job) {
  try {
    return factory(job);
  } catch (const std::exception& error) {
    // The job and its data make it fail, so it would fail again.
    return absl::InvalidArgumentError(TorchError("making the task", error).message());
  }
}

}  // namespace

int TrainMain(int argc, char** argv, const TaskFactory& factory) {
  return RunWorkerProgram(argc, argv,
                          [&factory](const JobSpec& job, const Connect& connect) -> absl::Status {
                            const absl::StatusOr<Task> task = MakeTask(factory, job);
                            if (!task.ok()) return task.status();
                            if (!task->status().ok()) return task->status();
                            absl::StatusOr<WorkerOptions> options = connect();
                            if (!options.ok()) return options.status();
                            return RunWorker(*task, *std::move(options));
                          });
}

}  // namespace torchps
