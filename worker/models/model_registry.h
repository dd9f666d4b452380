#pragma once

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"
#include "worker/task.h"

namespace torchps {

// Builds the model that job.model names (linear | mlp | convnet | resnet18 | transformer) to fit
// `data`, with the objective that goes with it. Initial parameters come from torch's default
// generator: seed that first. REQUIRES: NormalizeJobSpec accepted `job`.
//
// INVALID_ARGUMENT: an unknown name (lists the known ones), or data that the model cannot read (a
// transformer on images).
absl::StatusOr<Task> MakeTask(const JobSpec& job, DataSource data);

}  // namespace torchps
