#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/ids.h"

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

  // Maximum number of runs; the oldest are dropped beyond it. This limits memory if every other
  // push of a slot is rejected. A longer rollback is then reported as smaller than it is.
  static constexpr size_t kMaxRuns = 4096;

  // Returns how many steps are new to the set. REQUIRES: run.first <= run.last.
  uint64_t Add(Run run);

  // Removes and returns all steps above `step`.
  std::vector<Run> TakeAbove(Step step);

 private:
  std::map<Step, Step> runs_;  // first to last; disjoint and not adjacent
};

}  // namespace torchps
