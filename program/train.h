#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "data/data_registry.h"
#include "data/tensor_dataset.h"
#include "job/hyperparameter.h"
#include "program/staged_task.h"
#include "proto/job.pb.h"
#include "worker/load_model.h"
#include "worker/objective.h"
#include "worker/replicas/sync_batch_norm.h"
#include "worker/stages/stages.h"
#include "worker/state_file.h"
#include "worker/task.h"

// What a program includes to train its own module on parameter servers:
//
//   int main(int argc, char** argv) {
//     return torchps::TrainMain(argc, argv, [](const torchps::JobSpec& job) {
//       return torchps::Task{std::make_shared<Net>(), torchps::CrossEntropy(),
//                            torchps::OpenData(job)};
//     });
//   }

namespace torchps {

// Makes what is to be trained. May return a Task or an absl::StatusOr<Task>. Called on the thread
// that trains, after torch's generator was seeded with job.seed: all workers begin with the same
// parameters. Once, or where --device names several devices once for each: the modules are then
// used by a thread each, and the first one's datasets and callbacks count.
using TaskFactory = std::function<absl::StatusOr<Task>(const JobSpec& job)>;

// The main function of a worker: reads the flags (--help lists them), makes the task, joins the job
// on --servers, or with --local on servers inside this process, trains until it is done, and
// returns the exit code (common/process/exit_codes.h). SIGINT and SIGTERM end it after the current
// step, and while the task is made at once, without returning. An error is one sentence on standard
// error.
//
// Call it first thing in main: it lets go of the two signals before any other thread exists.
int TrainMain(int argc, char** argv, const TaskFactory& factory);

// Cuts the module of a task into so many stages, for as many processes; their tensors keep the
// names that they have in the module.
using ModuleCutter = std::function<absl::StatusOr<Stages>(
    const JobSpec& job, const torch::nn::Module& module, int stages)>;

// The same for modules that are no torchps::Stages: with --stage this process makes all of the
// module, for its initial values, and keeps that stage of it.
int TrainMain(int argc, char** argv, const TaskFactory& factory, const ModuleCutter& cut);

}  // namespace torchps
