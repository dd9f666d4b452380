#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/program/task_setup.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/replicas/sync_batch_norm.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/state_file.h"
#include "torchps/worker/task.h"

// The header for programs that train a module on parameter servers:
//
//   int main(int argc, char** argv) {
//     return torchps::TrainMain(argc, argv, [](const torchps::JobSpec& job) {
//       return torchps::Task{std::make_shared<Net>(), torchps::CrossEntropy(),
//                            torchps::OpenData(job)};
//     });
//   }

namespace torchps {

// Creates the task. May return a Task or an absl::StatusOr<Task>. Called on the training thread,
// after torch's generator was seeded with job.seed, so that all workers begin with the same
// parameters. Called once, or once per device if --device names several. Each module is then used
// by one thread, and the datasets and callbacks of the first task are used.
using TaskFactory = std::function<absl::StatusOr<Task>(const JobSpec& job)>;

// The main function of a worker. Reads the flags (see --help), creates the task and joins the job
// on --servers, or with --local on servers inside this process. Trains until the job is done, and
// returns the exit code (torchps/common/process/command_line.h). SIGINT and SIGTERM end the worker
// after the current step. While the task is being created, they end the process immediately. Prints
// an error as one sentence on standard error.
//
// Call this first in main: it blocks the two signals before other threads exist.
int TrainMain(int argc, char** argv, const TaskFactory& factory);

// Divides the module of a task into `stages` stages, one per process. The tensors keep the names
// that they have in the module.
using ModuleCutter = std::function<absl::StatusOr<Stages>(
    const JobSpec& job, const torch::nn::Module& module, int stages)>;

// Like TrainMain above, for modules that are not torchps::Stages. If --stage is set, this process
// creates the whole module, for the initial values, and keeps that stage.
int TrainMain(int argc, char** argv, const TaskFactory& factory, const ModuleCutter& cut);

}  // namespace torchps
