#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/mutex.h"
#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/task.h"

namespace torchps {

// Describes a training task for a model in stages that are created separately. A process that runs
// one stage creates only that stage.
struct StagedTask {
  // Each function is called after torch's generator was seeded for the stage. So a stage's initial
  // parameters do not depend on the process that creates it.
  std::vector<std::function<ModelStage()>> stages;
  Objective objective;              // gets the output of the last stage
  absl::StatusOr<DataSource> data;  // the same samples in each process
  Callbacks callbacks = {};         // only `augment` with stages in several processes
};

// Creates the task. Called once, on the training thread.
using StagedTaskFactory = std::function<absl::StatusOr<StagedTask>(const JobSpec& job)>;

// Works like TrainMain(). If --stage=K and --replica are set, this process creates and trains stage
// K; otherwise it creates and trains all stages, as a torchps::Stages.
//
//   return torchps::TrainStagesMain(argc, argv, [](const torchps::JobSpec& job) {
//     return torchps::StagedTask{
//         {[] { return torch::nn::Sequential(torch::nn::Linear(784, 4096), torch::nn::ReLU()); },
//          [] { return torch::nn::Sequential(torch::nn::Linear(4096, 10)); }},
//         torchps::CrossEntropy(),
//         torchps::OpenData(job)};
//   });
int TrainStagesMain(int argc, char** argv, const StagedTaskFactory& factory);

// Tracks whether a program is creating the task. In this phase, the program's code reads or
// generates data and cannot respond to a stop, and the process does not hold a slot yet.
//
// Thread-safe.
class TaskSetup {
 public:
  // Call it before the program creates the task. CANCELLED: the process was stopped; do not create
  // the task.
  absl::Status Begin();
  // Call it when the program has created the task or failed to. CANCELLED: the process was stopped.
  // May be called again.
  absl::Status End();

  // Stops the process. Returns true if the task is being created: the process may then end
  // immediately, because it does not hold a slot. Otherwise the training thread receives the stop
  // from the stop latch or from Begin().
  bool Stop(const std::string& reason);

 private:
  absl::Status status() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ ? absl::CancelledError(reason_) : absl::OkStatus();
  }

  Mutex mutex_;
  bool is_making_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

// Changes how the process ends if torch throws from a destructor, for example when freeing the
// memory of a failed GPU. The process then ends with exit code 1 and a message on standard error,
// prefixed with `program`. By default, it would end with SIGABRT, and a launcher would treat that
// as a crash and restart the program. Other failures are unchanged. Uses std::set_terminate. Call
// it once in main, before threads start.
void EndWellWhenTorchThrows(const char* program);

}  // namespace torchps
