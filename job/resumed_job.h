#pragma once

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace torchps {

// Returns OK if a stopped job may resume as `now`. These fields may change: epochs and pushes,
// learning rate, weight decay, schedule, clipping, staleness bound, lag contract, encodings, lease
// and checkpoint intervals, and the number of workers if the workers share each batch. For any
// other change, returns FAILED_PRECONDITION, naming the first changed field, both values, and the
// reason. REQUIRES: both jobs are normalised. Thread-safe.
absl::Status CheckMayResume(const JobSpec& before, const JobSpec& now);

}  // namespace torchps
