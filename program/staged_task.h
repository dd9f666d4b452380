#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"
#include "worker/objective.h"
#include "worker/stages/stages.h"
#include "worker/task.h"

namespace torchps {

// Describes a training task for a model in stages that are created separately. A process that runs
// one stage creates only that stage.
struct StagedTask {
  // Each function is called after torch's generator was seeded for the stage. So a stage's initial
  // parameters do not depend on the process that creates it.
  std::vector<std::function<ModelStage()>> stages;
  Objective objective;
  absl::StatusOr<DataSource> data;
  Callbacks callbacks = {};
};

// Creates the task. Called once, on the training thread.
using StagedTaskFactory = std::function<absl::StatusOr<StagedTask>(const JobSpec& job)>;

// Works like TrainMain(). If --stage=K and --replica are set, this process creates and trains stage
// K; otherwise all stages, as a torchps::Stages.
//
//   return torchps::TrainStagesMain(argc, argv, [](const torchps::JobSpec& job) {
//     return torchps::StagedTask{
//         {[] { return torch::nn::Sequential(torch::nn::Linear(784, 4096), torch::nn::ReLU()); },
//          [] { return torch::nn::Sequential(torch::nn::Linear(4096, 10)); }},
//         torchps::CrossEntropy(),
//         torchps::OpenData(job)};
//   });
int TrainStagesMain(int argc, char** argv, const StagedTaskFactory& factory);

}  // namespace torchps
