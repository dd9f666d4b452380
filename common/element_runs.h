#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace torchps {

// Elements that follow each other: [begin, end), counted from wherever the runs are counted.
struct ElementRun {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const ElementRun& a, const ElementRun& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// Some of the elements of a vector: runs in ascending order, none empty, a gap between neighbours.
// So the same elements are always the same runs. None of the elements: no runs.
using ElementRuns = std::vector<ElementRun>;

// Appends [begin, end), and lets it grow together with the last run where they touch. Nothing for
// an empty one. REQUIRES: it begins at or behind the end of the last run.
void AppendRun(int64_t begin, int64_t end, ElementRuns* runs);

// Whether the runs are all of `length` elements.
bool CoversAll(absl::Span<const ElementRun> runs, int64_t length);

// The elements of [begin, end) that are in `runs`, counted from `begin`.
ElementRuns RunsWithin(absl::Span<const ElementRun> runs, int64_t begin, int64_t end);

// The elements that are in both.
ElementRuns RunsInBoth(absl::Span<const ElementRun> a, absl::Span<const ElementRun> b);

// INVALID_ARGUMENT names the first run that breaks the rules above, or lies outside of `length`
// elements.
absl::Status CheckRuns(absl::Span<const ElementRun> runs, int64_t length);

}  // namespace torchps
