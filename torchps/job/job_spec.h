#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/proto/job.pb.h"

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

// Returns true if the workers keep the momentum instead of the servers (optimizer.sgd.momentum_at).
// REQUIRES: `optimizer` belongs to a normalised job.
inline bool MomentumInWorkers(const OptimizerSpec& optimizer) {
  return optimizer.sgd().momentum_at() == SgdSpec::WORKER;
}

// Returns a warning for the user if staleness harms the job's momentum, otherwise an empty string.
// REQUIRES: `job` is normalised.
inline std::string MomentumWarning(const JobSpec& job) {
  const SgdSpec& sgd = job.optimizer().sgd();
  if (sgd.momentum() <= 0 || sgd.momentum_at() != SgdSpec::SERVER || job.workers() < 2 ||
      !AppliesEachPush(job.consistency())) {
    return "";
  }
  // The largest stable learning rate is 0.35 with SERVER and 1.6 with WORKER, in units of 1 /
  // curvature, for 3 prefetching workers and a momentum of 0.9.
  return absl::StrCat("optimizer.sgd.momentum_at is SERVER in ASYNC with apply EACH_PUSH and ",
                      job.workers(),
                      " workers: late gradients make the largest stable learning rate about 4.6 "
                      "times lower than WORKER's, and lower than without momentum; remove "
                      "momentum_at, and use a dampening of 0 (docs/protocol.md, \"Momentum\")");
}

// Returns a sentence for users whose job combines stale gradients (ASYNC with apply EACH_PUSH) with
// a learning rate that is probably too high, otherwise an empty string. This is only a hint,
// because the limit depends on the model; docs/guide.md lists measurements. REQUIRES: `job` is
// normalised.
std::string RateHint(const JobSpec& job);

}  // namespace torchps
