#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/ids.h"

namespace torchps {

// A set of steps, kept as runs of consecutive ones, since that is how steps come.
// Thread-compatible.
class StepSet {
 public:
  // From `first` to `last`, both included.
  struct Run {
    Step first = 0;
    Step last = 0;
    friend bool operator==(const Run& a, const Run& b) {
      return a.first == b.first && a.last == b.last;
    }
  };

  // Runs that are kept; with more the oldest are forgotten, so that a slot whose every other push
  // is rejected does not fill its memory. A rollback over more than that is told as smaller than it
  // was.
  static constexpr size_t kMaxRuns = 4096;

  // Returns how many of them were not there before. REQUIRES: run.first <= run.last.
  uint64_t Add(Run run);

  // Takes out all steps above `step`.
  std::vector<Run> TakeAbove(Step step);

 private:
  std::map<Step, Step> runs_;  // first to last; disjoint, and not touching each other
};

}  // namespace torchps
