#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace torchps {

// Contiguous elements [begin, end). The code that uses a run defines which element has index 0.
struct ElementRun {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const ElementRun& a, const ElementRun& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// Subset of a vector's elements: non-empty runs in ascending order with gaps between neighbours.
// Each subset therefore has exactly one representation. The empty subset contains zero runs.
using ElementRuns = std::vector<ElementRun>;

// Appends [begin, end), merging it with the last run if the two touch. Ignores an empty run.
// REQUIRES: `begin` is not before the end of the last run.
void AppendRun(int64_t begin, int64_t end, ElementRuns* runs);

// Returns true if the runs cover all of `length` elements.
bool CoversAll(absl::Span<const ElementRun> runs, int64_t length);

// Returns the elements of `runs` within [begin, end), with indices relative to `begin`.
ElementRuns RunsWithin(absl::Span<const ElementRun> runs, int64_t begin, int64_t end);

// Returns the intersection of `a` and `b`.
ElementRuns RunsInBoth(absl::Span<const ElementRun> a, absl::Span<const ElementRun> b);

// Returns INVALID_ARGUMENT, naming the first run that breaks the rules of ElementRuns or ends after
// `length` elements.
absl::Status CheckRuns(absl::Span<const ElementRun> runs, int64_t length);

}  // namespace torchps
