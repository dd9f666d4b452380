#pragma once

#include <limits>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// Estimates the updates that the servers have made since a worker's last step, from the versions of
// its pulls. A worker need not ask servers that cannot be far ahead.
//
// Thread-compatible. Knows no clock.
class UpdatePace {
 public:
  // The worker computes on values of `version`; called once a step. Returns the estimate for the
  // time since the last call, which is at least that since the pull. Infinite: not known yet.
  double UpdatesSinceLastStep(Version version, absl::Duration now) {
    const absl::Duration passed = now - last_;
    const double updates = per_update_ > absl::ZeroDuration()
                               ? absl::FDivDuration(passed, per_update_)
                               : std::numeric_limits<double>::infinity();
    if (version > version_ && last_ > absl::ZeroDuration()) {
      const absl::Duration latest = passed / (version - version_);
      const bool is_first = per_update_ == absl::ZeroDuration();
      per_update_ = is_first ? latest : per_update_ + (latest - per_update_) * kNewest;
    }
    version_ = version;
    last_ = now;
    return updates;
  }

 private:
  // The part of the latest step in the mean.
  static constexpr double kNewest = 0.2;

  absl::Duration last_;
  absl::Duration per_update_;
  Version version_ = 0;
};

}  // namespace torchps
