#pragma once

#include "absl/time/time.h"
#include "server/job/hosted_job.h"

namespace torchps {

// Returns how long a stalled call may keep other calls waiting: the lease time plus the time of one
// block on a slow link. Thread-safe.
inline absl::Duration CallPatience(HostedJob* job) {
  // Bandwidth of the slowest link that is waited for.
  constexpr double kSlowBytesPerSecond = 1 << 20;
  return absl::Seconds(job->spec().membership().lease_seconds() +
                       static_cast<double>(job->store().largest_block_bytes()) /
                           kSlowBytesPerSecond);
}

}  // namespace torchps
