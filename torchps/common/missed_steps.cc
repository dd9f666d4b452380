#include "torchps/common/missed_steps.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

void MissedSteps::Add(absl::Span<const ElementRun> absent, int64_t updates) {
  std::vector<MissedRun> sum;
  const auto append = [&sum](int64_t begin, int64_t end, int64_t steps) {
    if (begin >= end || steps == 0) return;
    if (!sum.empty() && sum.back().end == begin && sum.back().steps == steps) {
      sum.back().end = end;
    } else {
      sum.push_back({begin, end, steps});
    }
  };
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  int64_t at = 0;
  for (size_t i = 0, j = 0; i < runs_.size() || j < absent.size();) {
    const bool is_old = i < runs_.size() && runs_[i].begin <= at;
    const bool is_new = j < absent.size() && absent[j].begin <= at;
    // Advance to the next position at which a run of either list begins or ends.
    int64_t end = kEnd;
    if (i < runs_.size()) end = std::min(end, is_old ? runs_[i].end : runs_[i].begin);
    if (j < absent.size()) end = std::min(end, is_new ? absent[j].end : absent[j].begin);
    append(at, end, (is_old ? runs_[i].steps : 0) + (is_new ? updates : 0));
    at = end;
    if (is_old && runs_[i].end == at) ++i;
    if (is_new && absent[j].end == at) ++j;
  }
  runs_ = std::move(sum);
}

absl::Status MissedSteps::Check(absl::Span<const MissedRun> runs, int64_t length, int64_t updates) {
  int64_t least = 0;
  int64_t steps_before = 0;
  for (const MissedRun& run : runs) {
    const bool touches = run.begin == least && least > 0;
    if (run.begin < least || run.end <= run.begin || run.end > length || run.steps < 1 ||
        run.steps > updates || (touches && run.steps == steps_before)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "invalid record of missed steps: elements ", run.begin, " to ", run.end,
          " of a block of ", length, " missed ", run.steps, " of ", updates, " updates"));
    }
    least = run.end;
    steps_before = run.steps;
  }
  return absl::OkStatus();
}

}  // namespace torchps
