#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/evaluation.h"
#include "worker/task.h"

namespace torchps {

// Tries a task on a few samples before its job begins: the loss of training samples, and an
// evaluation of test samples where the job evaluates. So a metric that throws or a test label out
// of range is found in seconds, not after the first epoch. Changes neither the module nor its
// modes. Returns the evaluation, which has no samples where the job evaluates none.
//
// `print` gets a line where the loss is no mean over samples, and several workers would learn
// something else than one process. INVALID_ARGUMENT: a worker's part of a batch is a single sample,
// and the module has a batch norm. Errors of an evaluation.
absl::StatusOr<Evaluation> TryOut(const Task& task, const JobSpec& job,
                                  const std::function<void(const std::string& line)>& print);

}  // namespace torchps
