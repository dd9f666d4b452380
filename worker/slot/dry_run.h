#pragma once

#include "absl/status/status.h"
#include "worker/slot/worker_options.h"
#include "worker/task.h"

namespace torchps {

// A worker's first step without servers: loads model.init_from, tries the task (TryOut), computes
// the gradient of one batch on the worker's device, and prints the losses. Nothing is trained. The
// errors are those of the first seconds of a real run.
absl::Status DryRun(const Task& task, const WorkerOptions& options);

}  // namespace torchps
