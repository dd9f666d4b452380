#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/slot/worker_options.h"
#include "torchps/worker/task.h"

namespace torchps {

// Tries a task on a few samples before the job begins: computes the loss of training samples and,
// if the job evaluates, evaluates test samples. This finds a throwing metric or an out-of-range
// label in seconds instead of after the first epoch. Does not change the module or the modes of
// layers. Returns the evaluation, which is empty if the job does not evaluate.
//
// Prints a warning with `print` if the loss is not a mean over samples, because several workers
// would then train differently from one process. INVALID_ARGUMENT if a worker's part of a batch is
// one sample and the module contains a batch norm. Also returns the errors of the evaluation.
absl::StatusOr<Evaluation> TryOut(const Task& task, const JobSpec& job,
                                  const std::function<void(const std::string& line)>& print);

// Runs a worker's first step without servers: loads model.init_from, tries the task (TryOut),
// computes the gradient of one batch on the worker's device, and prints the losses. Does not train.
// Returns the errors that a real run would meet in the first seconds.
absl::Status DryRun(const Task& task, const WorkerOptions& options);

}  // namespace torchps
