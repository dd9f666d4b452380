#pragma once

#include "absl/status/status.h"
#include "worker/slot/worker_options.h"
#include "worker/task.h"

namespace torchps {

// Runs a worker's first step without servers: loads model.init_from, tries the task (TryOut),
// computes the gradient of one batch on the worker's device, and prints the losses. Does not train.
// Returns the errors that a real run would meet in the first seconds.
absl::Status DryRun(const Task& task, const WorkerOptions& options);

}  // namespace torchps
