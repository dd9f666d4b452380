#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace torchps {

// Validates the ranges of all fields and sets the defaults stated in job.proto; jobs are validated
// only here. Afterwards all applicable submessages are present: data, training, optimizer with kind
// and schedule, consistency with lag contract, wire, membership, durability; model.transformer and
// data.csv if used. Idempotent. Returns INVALID_ARGUMENT, as in "job field training.batch_size is
// 0; expected 1 to 1048576". Thread-safe.
absl::StatusOr<JobSpec> NormalizeJobSpec(JobSpec job);

// Computes optimizer.schedule.total_steps if it is 0, once the size of the training data is known.
// A push consumes batch_size * accumulate samples, so this is
//   pushes = epochs * ceil(train_samples / (batch_size * accumulate)), max_pushes at most,
// in ASYNC with apply EACH_PUSH, and ceil(pushes / workers) otherwise. Returns INVALID_ARGUMENT if
// there are no training samples, or if the warm-up leaves no steps for a COSINE schedule. REQUIRES:
// `job` is normalised.
absl::Status CompleteJobSpec(JobSpec* job, int64_t train_samples);

}  // namespace torchps
