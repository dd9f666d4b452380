#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "torchps/common/types.h"

namespace torchps {

// Stores a set of steps as runs of consecutive steps. Thread-compatible.
class StepSet {
 public:
  // The closed interval from `first` to `last`.
  struct Run {
    Step first = 0;
    Step last = 0;
    friend bool operator==(const Run& a, const Run& b) {
      return a.first == b.first && a.last == b.last;
    }
  };

  // Maximum number of runs. Beyond it, Add() drops the run with the lowest steps. This limits
  // memory if every other push of a slot is rejected. A rollback that reaches the dropped steps is
  // reported as smaller than it is.
  static constexpr size_t kMaxRuns = 4096;

  // Adds the steps of `run`. Returns how many of them were not in the set. REQUIRES: run.first <=
  // run.last.
  uint64_t Add(Run run);

  // Removes and returns all steps above `step`.
  std::vector<Run> TakeAbove(Step step);

 private:
  std::map<Step, Step> runs_;  // first to last; disjoint and not adjacent
};

// Estimates from the pulled versions how many updates the servers made since a worker's last step.
// So the worker need not query servers that cannot be far ahead.
//
// Thread-compatible. Does not read a clock.
class UpdatePace {
 public:
  // Records that the worker computes on values of `version`. Called once per step. Returns the
  // estimated number of updates since the last call; infinite if unknown. The worker pulled
  // `version` after the last call, so the number of updates since that pull is not higher.
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
  // Weight of the latest step in the moving average `per_update_`.
  static constexpr double kNewest = 0.2;

  absl::Duration last_;
  absl::Duration per_update_;
  Version version_ = 0;
};

}  // namespace torchps
