#pragma once

#include "absl/time/time.h"
#include "server/job/hosted_job.h"

namespace torchps {

// How long a call may keep others waiting that moves nothing: as long as a lease lasts, and as long
// as a block takes on a slow link. Thread-safe.
inline absl::Duration CallPatience(HostedJob* job) {
  // The slowest link on which a block is waited for while others could be served.
  constexpr double kSlowBytesPerSecond = 1 << 20;
  return absl::Seconds(job->spec().membership().lease_seconds() +
                       static_cast<double>(job->store().largest_block_bytes()) /
                           kSlowBytesPerSecond);
}

}  // namespace torchps
