#pragma once

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "worker/loop/smoothed_time.h"

namespace torchps {

// Whether a worker pulls the next step's values while it computes this one: where the job leaves it
// open, if that hides enough. It costs every gradient a version of lag, and hides a pull: it is
// worth that only where pulls are a good part of a step.
//
// Thread-compatible. Takes durations and no clock.
class PrefetchPolicy {
 public:
  // What the job says; nullopt: to be measured, and off at first.
  explicit PrefetchPolicy(absl::optional<bool> wanted)
      : wanted_(wanted), on_(wanted.value_or(false)) {}

  // A pull moved values for so long, beside what the staleness bound held it.
  void AddPull(absl::Duration took) {
    // The first one brings everything, through connections that it opens.
    if (is_first_) {
      is_first_ = false;
      return;
    }
    pull_.Add(took);
  }

  // A step computed for so long, from fetching its samples on. True: on() has changed.
  bool AddStep(absl::Duration took) {
    step_.Add(took);
    if (wanted_.has_value() || ++steps_ < kStepsBeforeDeciding) return false;
    const bool before = on_;
    on_ = share() > (on_ ? kOff : kOn);
    return on_ != before;
  }

  bool on() const { return on_; }

  // Of a step whose pull nothing hides, the pull's part; 0 before anything is known.
  double share() const {
    const absl::Duration whole = pull_.value() + step_.value();
    if (whole <= absl::ZeroDuration()) return 0;
    return absl::FDivDuration(pull_.value(), whole);
  }

 private:
  // One version of lag costs 3 workers about 0.2 points of accuracy with Adam, 0.35 to 0.8 with
  // momentum (docs/protocol.md, "Update rules"): less than a tenth of the time does not pay for it.
  static constexpr double kOn = 0.1;
  // Half of that, so that a share near the border does not switch all the time.
  static constexpr double kOff = 0.05;
  // The first ones warm caches up.
  static constexpr int kStepsBeforeDeciding = 8;

  const absl::optional<bool> wanted_;
  bool on_;
  bool is_first_ = true;
  int steps_ = 0;
  SmoothedTime pull_;
  SmoothedTime step_;
};

}  // namespace torchps
