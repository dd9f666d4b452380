#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torchps/common/element_runs.h"

namespace torchps {

// Run of elements that `steps` updates of their block did not contain.
struct MissedRun {
  int64_t begin = 0;  // [begin, end), counted from the block's first element
  int64_t end = 0;
  int64_t steps = 0;

  friend bool operator==(const MissedRun& a, const MissedRun& b) {
    return a.begin == b.begin && a.end == b.end && a.steps == b.steps;
  }
};

// Counts, for each element of a block, the updates that did not contain the element. An optimizer
// that counts steps per parameter, as torch.optim does, uses the block's version minus this count.
// For most blocks all counts are zero, and the object is empty.
//
// Value type. Runs ascend and do not overlap, each run missed at least one step, and adjacent runs
// have different counts. Thread-compatible.
class MissedSteps {
 public:
  MissedSteps() = default;
  // REQUIRES: Check() is OK for the block.
  explicit MissedSteps(absl::Span<const MissedRun> runs) : runs_(runs.begin(), runs.end()) {}

  bool empty() const { return runs_.empty(); }
  absl::Span<const MissedRun> runs() const { return runs_; }

  // Adds `updates` to the counts of the `absent` elements. REQUIRES: CheckRuns(absent) is OK;
  // `updates` > 0.
  void Add(absl::Span<const ElementRun> absent, int64_t updates = 1);

  // Returns INVALID_ARGUMENT, naming the first run that breaks the rules above, ends after `length`
  // elements, or missed more than `updates` updates.
  static absl::Status Check(absl::Span<const MissedRun> runs, int64_t length, int64_t updates);

 private:
  std::vector<MissedRun> runs_;
};

}  // namespace torchps
