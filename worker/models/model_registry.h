#pragma once

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"
#include "worker/stages/stages.h"
#include "worker/task.h"

namespace torchps {

// Builds the model that job.model names (linear | mlp | convnet | resnet18 | transformer) to fit
// `data`, with the objective that goes with it. Initial parameters come from torch's default
// generator: seed that first. REQUIRES: NormalizeJobSpec accepted `job`.
//
// INVALID_ARGUMENT: an unknown name (lists the known ones), or data that the model cannot read (a
// transformer on images).
absl::StatusOr<Task> MakeTask(const JobSpec& job, DataSource data);

// The module of MakeTask(job, ...) in `stages` stages, which share it: mlp | transformer. A stage's
// tensors have the names that they have in the module. INVALID_ARGUMENT: another model, or more
// stages than layers. REQUIRES: stages >= 1.
absl::StatusOr<Stages> CutModule(const JobSpec& job, const torch::nn::Module& module, int stages);

}  // namespace torchps
