#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "worker/task.h"

namespace torchps {

// Tries a task on a few samples before its job begins: the loss of training samples, and an
// evaluation of test samples where the job evaluates. So a wrong shape, a metric that throws or a
// label out of range is found in seconds, not after the first epoch. Changes neither the module nor
// its modes.
//
// `print` gets a line where the loss is no mean over samples, and several workers would learn
// something else than one process. Errors: those of the user's code.
absl::Status TryOut(const Task& task, const JobSpec& job,
                    const std::function<void(const std::string& line)>& print);

}  // namespace torchps
