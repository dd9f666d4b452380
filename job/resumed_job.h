#pragma once

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace torchps {

// OK where a job that was stopped may go on as `now`: with more epochs or pushes, another learning
// rate, weight decay, schedule, clipping, staleness bound, lag contract, encoding, lease or rhythm
// of checkpoints, and another number of workers where they share each batch. FAILED_PRECONDITION
// names the first other field in which the two differ, both values, and the reason why it may not
// change. Both are normalised. Thread-safe.
absl::Status CheckMayResume(const JobSpec& before, const JobSpec& now);

}  // namespace torchps
