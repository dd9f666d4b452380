#pragma once

#include <optional>

#include "absl/time/time.h"

namespace torchps {

// Exponential moving average of a duration. Zero before the first value.
class SmoothedTime {
 public:
  void Add(absl::Duration newest) {
    value_ = value_ == absl::ZeroDuration() ? newest : value_ * (1 - kNewest) + newest * kNewest;
  }
  absl::Duration value() const { return value_; }

 private:
  static constexpr double kNewest = 0.2;

  absl::Duration value_;
};

// Decides if a worker prefetches: pulls the next step's values while it computes the current step.
// If the job sets consistency.prefetch, follows the job. Prefetching hides the time of a pull, but
// adds one version of lag to each gradient. That pays only if pulls take a large part of the step
// time.
//
// Thread-compatible. Durations are passed in; the class reads no clock.
class PrefetchPolicy {
 public:
  // `wanted` is the job's setting. If it is nullopt, prefetching starts off and is then decided by
  // measurement.
  explicit PrefetchPolicy(std::optional<bool> wanted)
      : wanted_(wanted), on_(wanted.value_or(false)) {}

  // Adds the transfer time of a pull. `took` excludes the time for which the staleness bound
  // delayed the pull.
  void AddPull(absl::Duration took) {
    // The first pull opens connections and transfers every block.
    if (is_first_) {
      is_first_ = false;
      return;
    }
    pull_.Add(took);
  }

  // Adds the computing time of a step, including the fetching of samples. Returns true if on()
  // changed.
  bool AddStep(absl::Duration took) {
    step_.Add(took);
    if (wanted_.has_value() || ++steps_ < kStepsBeforeDeciding) return false;
    const bool before = on_;
    on_ = share() > (on_ ? kOff : kOn);
    return on_ != before;
  }

  bool on() const { return on_; }

  // Returns the share of the step time that a pull takes without prefetching, or 0 before any
  // measurement.
  double share() const {
    const absl::Duration whole = pull_.value() + step_.value();
    if (whole <= absl::ZeroDuration()) return 0;
    return absl::FDivDuration(pull_.value(), whole);
  }

 private:
  // Above this share(), prefetching begins. One version of lag costs 3 workers about 0.2 points of
  // accuracy with Adam and 0.35 to 0.8 points with momentum (docs/protocol.md, "Update rules").
  // Saving less than a tenth of the time is not worth that.
  static constexpr double kOn = 0.1;
  // At or below this share(), prefetching ends. Lower than kOn, so that a share near the threshold
  // does not toggle on().
  static constexpr double kOff = 0.05;
  // Number of steps to measure before the first decision, because the first steps warm up caches.
  static constexpr int kStepsBeforeDeciding = 8;

  const std::optional<bool> wanted_;
  bool on_;
  bool is_first_ = true;
  int steps_ = 0;
  SmoothedTime pull_;
  SmoothedTime step_;
};

}  // namespace torchps
