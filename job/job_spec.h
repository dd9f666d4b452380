#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace torchps {

// The one place where a job is checked: every field against its range, what is left out filled in
// as job.proto states. Submessages that apply are present afterwards (data, training, optimizer
// with its kind and schedule, consistency with its lag contract, wire, membership, durability;
// model.transformer and data.csv where named). Normalising twice changes nothing. INVALID_ARGUMENT:
// "job field training.batch_size is 0; expected 1 to 1048576". Thread-safe.
absl::StatusOr<JobSpec> NormalizeJobSpec(JobSpec job);

// Gives optimizer.schedule.total_steps its value where it is 0, now that the size of the training
// data is known. A push takes batch_size * accumulate samples, so that is
//   pushes = epochs * ceil(train_samples / (batch_size * accumulate)), max_pushes at most,
// in ASYNC, and ceil(pushes / workers) rounds in SYNC.
// REQUIRES: `job` is normalised. INVALID_ARGUMENT: no training sample, or a warm-up that leaves a
// cosine no step.
absl::Status CompleteJobSpec(JobSpec* job, int64_t train_samples);

}  // namespace torchps
