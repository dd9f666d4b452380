#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/element_runs.h"

namespace torchps {

// Elements of a block that `steps` of its gradients had nothing for.
struct MissedRun {
  int64_t begin = 0;  // [begin, end), counted from the block's first element
  int64_t end = 0;
  int64_t steps = 0;

  friend bool operator==(const MissedRun& a, const MissedRun& b) {
    return a.begin == b.begin && a.end == b.end && a.steps == b.steps;
  }
};

// How many of a block's gradients each of its elements has missed. An optimizer that counts a
// parameter's own steps, as torch.optim does, counts the block's version less these. Most blocks
// have missed nothing, and this is empty.
//
// A value type; the runs ascend, do not overlap, miss at least one step each, and neighbours that
// touch differ. Thread-compatible.
class MissedSteps {
 public:
  MissedSteps() = default;
  // REQUIRES: Check() is OK for the block.
  explicit MissedSteps(absl::Span<const MissedRun> runs) : runs_(runs.begin(), runs.end()) {}

  bool empty() const { return runs_.empty(); }
  absl::Span<const MissedRun> runs() const { return runs_; }

  // So many gradients more had nothing for these elements. REQUIRES: CheckRuns() would be OK;
  // `gradients` > 0.
  void Add(absl::Span<const ElementRun> absent, int64_t gradients = 1);

  // INVALID_ARGUMENT names the first run that breaks the rules above, lies outside of `length`
  // elements, or has missed more than `gradients`.
  static absl::Status Check(absl::Span<const MissedRun> runs, int64_t length, int64_t gradients);

 private:
  std::vector<MissedRun> runs_;
};

}  // namespace torchps
