#include "torchps/common/clock.h"

#include <algorithm>
#include <chrono>

#include "torchps/common/hash.h"

namespace torchps {

absl::Duration SteadyClock::Now() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

Backoff::Backoff(Options options, uint64_t seed)
    : options_(options), random_state_(seed), delay_(options.initial) {}

absl::Duration Backoff::Next() {
  const double taken_off = 0.25 * UnitDouble(SplitMix64(random_state_));
  const absl::Duration delay = delay_ * (1.0 - taken_off);
  delay_ = std::min(delay_ * 2, options_.max);
  return delay;
}

void Backoff::Reset() { delay_ = options_.initial; }

}  // namespace torchps
