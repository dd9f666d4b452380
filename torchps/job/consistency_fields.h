#pragma once

#include <cstdint>
#include <limits>

#include "torchps/job/field_checker.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Properties of the update rule of a job (ConsistencySpec.mode and .apply). REQUIRES: `consistency`
// is normalised. Thread-safe.

// Returns true if all live slots contribute to each update (SYNC).
inline bool HasRounds(const ConsistencySpec& consistency) {
  return consistency.mode() == ConsistencySpec::SYNC;
}

// Returns true if an update happens once the samples of a whole batch have arrived (ASYNC with
// apply WHOLE_BATCH).
inline bool AppliesWholeBatches(const ConsistencySpec& consistency) {
  return !HasRounds(consistency) && consistency.apply() == ConsistencySpec::WHOLE_BATCH;
}

// Returns true if an update is the mean of several pushes (SYNC or WHOLE_BATCH). A worker then
// requests a lease for each push, and a server acknowledges a push after the update.
inline bool CollectsPushes(const ConsistencySpec& consistency) {
  return HasRounds(consistency) || AppliesWholeBatches(consistency);
}

// Returns true if each push is a separate update (ASYNC with apply EACH_PUSH).
inline bool AppliesEachPush(const ConsistencySpec& consistency) {
  return !CollectsPushes(consistency);
}

// Returns the largest lag of a gradient that servers still apply, in updates of the block since the
// gradient's values were pulled. Returns the maximum value if the lag is unbounded; it is bounded
// only with WHOLE_BATCH or lag policy REJECT.
inline int64_t LargestLag(const ConsistencySpec& consistency) {
  const int64_t no_bound = std::numeric_limits<int64_t>::max();
  if (HasRounds(consistency)) return no_bound;
  if (AppliesWholeBatches(consistency)) {
    return consistency.staleness_bound() < 0 ? no_bound : consistency.staleness_bound();
  }
  return consistency.lag().policy() == LagContract::REJECT ? consistency.lag().max_lag() : no_bound;
}

// Sets defaults for consistency.mode, backup_workers, apply and patience, validates them, and
// reports errors to `check`. If a job sets mode ASYNC without apply, apply becomes EACH_PUSH, the
// only rule before `apply` existed. If a job with local steps or backup workers sets no mode, the
// mode becomes SYNC. Thread-safe.
void NormalizeUpdateRule(JobSpec* job, FieldChecker& check);

// Sets defaults for the remaining fields (staleness, lag contract, timeouts) and validates them.
// `workers` is the job's number of workers. REQUIRES: NormalizeUpdateRule() was called.
// Thread-safe.
void NormalizeConsistency(ConsistencySpec* consistency, int32_t workers, FieldChecker& check);

}  // namespace torchps
