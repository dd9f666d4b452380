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

// What is to be trained, with a model in stages of which each is made by itself: a process that
// holds one makes no other.
struct StagedTask {
  // Each is called after torch's generator was seeded for its stage: a stage begins with the same
  // parameters in whichever process it is made.
  std::vector<std::function<ModelStage()>> stages;
  Objective objective;
  absl::StatusOr<DataSource> data;
  Callbacks callbacks = {};
};

// Makes it. Called once, on the thread that trains.
using StagedTaskFactory = std::function<absl::StatusOr<StagedTask>(const JobSpec& job)>;

// As TrainMain(). With --stage=K and --replica this process makes and trains stage K; else all of
// them, as a torchps::Stages.
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
