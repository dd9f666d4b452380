#pragma once

#include "absl/status/statusor.h"
#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/task.h"

namespace torchps {

// Builds the model that job.model names (linear | mlp | convnet | resnet18 | transformer) with the
// shapes of `data` and the matching objective. torch's default generator draws the initial
// parameters, so seed it first. REQUIRES: NormalizeJobSpec accepted `job`.
//
// INVALID_ARGUMENT for an unknown name (the message lists the known names), or if the model cannot
// read the data, for example a transformer on images.
absl::StatusOr<Task> MakeTask(const JobSpec& job, DataSource data);

// Cuts the module of MakeTask(job, ...), an mlp or transformer, into `stages` stages that share its
// layers. Tensors keep their names. INVALID_ARGUMENT for another model, or if there are more stages
// than layers. REQUIRES: stages >= 1.
absl::StatusOr<Stages> CutModule(const JobSpec& job, const torch::nn::Module& module, int stages);

}  // namespace torchps
