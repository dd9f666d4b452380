#include "torchps/common/element_runs.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace torchps {

void AppendRun(int64_t begin, int64_t end, ElementRuns* runs) {
  if (begin >= end) return;
  if (!runs->empty() && runs->back().end == begin) {
    runs->back().end = end;
  } else {
    runs->push_back({begin, end});
  }
}

bool CoversAll(absl::Span<const ElementRun> runs, int64_t length) {
  return runs.size() == 1 && runs[0].begin == 0 && runs[0].end == length;
}

ElementRuns RunsWithin(absl::Span<const ElementRun> runs, int64_t begin, int64_t end) {
  ElementRuns within;
  auto run = std::upper_bound(runs.begin(), runs.end(), begin,
                              [](int64_t at, const ElementRun& other) { return at < other.end; });
  for (; run != runs.end() && run->begin < end; ++run) {
    AppendRun(std::max(run->begin, begin) - begin, std::min(run->end, end) - begin, &within);
  }
  return within;
}

ElementRuns RunsInBoth(absl::Span<const ElementRun> a, absl::Span<const ElementRun> b) {
  ElementRuns both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    AppendRun(std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end), &both);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return both;
}

absl::Status CheckRuns(absl::Span<const ElementRun> runs, int64_t length) {
  int64_t least = 0;
  for (const ElementRun& run : runs) {
    if (run.begin < least || run.end <= run.begin || run.end > length) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a run goes from element ", run.begin, " to ", run.end, "; expected one that begins at ",
          least, " or later, is not empty and ends ", "at ", length, " at the latest"));
    }
    // Neighbours that touch must form a single run.
    least = run.end + 1;
  }
  return absl::OkStatus();
}

}  // namespace torchps
