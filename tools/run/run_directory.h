#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// Where a run's servers keep their state (docs/checkpoint.md has the layout), as psctl sees it.

// Whether a run may begin in `dir`, which need not exist: anew in an empty one (locks of processes
// that have ended do not count), with `resume` in one that a run has left something in.
// INVALID_ARGUMENT says what is there, or is not.
absl::Status CheckRunDirectory(const std::string& dir, bool resume);

// What lies in `dir`, in words: "2 checkpoints of a job, the newest number 14".
std::string DescribeRunDirectory(const std::string& dir);

// An empty directory of this run's own; RESOURCE_EXHAUSTED if none can be made.
absl::StatusOr<std::string> MakeRunDirectory();

}  // namespace torchps
