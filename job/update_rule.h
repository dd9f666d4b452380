#pragma once

#include <cstdint>
#include <limits>

#include "proto/job.pb.h"

namespace torchps {

// What makes an update of a block (ConsistencySpec.mode and .apply), by the properties that code
// depends on. REQUIRES of all: `consistency` is normalised. Thread-safe.

// Whether every live slot contributes to each update: SYNC.
inline bool HasRounds(const ConsistencySpec& consistency) {
  return consistency.mode() == ConsistencySpec::SYNC;
}

// Whether an update is made when a whole batch's samples are in: ASYNC with apply WHOLE_BATCH.
inline bool AppliesWholeBatches(const ConsistencySpec& consistency) {
  return !HasRounds(consistency) && consistency.apply() == ConsistencySpec::WHOLE_BATCH;
}

// Whether an update is the mean of several pushes (SYNC and WHOLE_BATCH). Then a worker takes its
// lease push by push, and a push is acknowledged when its update is made.
inline bool CollectsPushes(const ConsistencySpec& consistency) {
  return HasRounds(consistency) || AppliesWholeBatches(consistency);
}

// Whether each push is an update of its own: ASYNC with apply EACH_PUSH.
inline bool AppliesEachPush(const ConsistencySpec& consistency) {
  return !CollectsPushes(consistency);
}

// In WHOLE_BATCH and with lag policy REJECT: the oldest gradient that is applied, in updates of its
// block since its values. Without a bound: the largest number.
inline int64_t LargestLag(const ConsistencySpec& consistency) {
  const int64_t no_bound = std::numeric_limits<int64_t>::max();
  if (HasRounds(consistency)) return no_bound;
  if (AppliesWholeBatches(consistency)) {
    return consistency.staleness_bound() < 0 ? no_bound : consistency.staleness_bound();
  }
  return consistency.lag().policy() == LagContract::REJECT ? consistency.lag().max_lag() : no_bound;
}

}  // namespace torchps
