#include "torchps/client/step_set.h"

#include <algorithm>
#include <iterator>

namespace torchps {

uint64_t StepSet::Add(Run run) {
  uint64_t added = static_cast<uint64_t>(run.last - run.first + 1);
  // Merges the run with all overlapping and adjacent runs.
  auto next = runs_.upper_bound(run.first);
  if (next != runs_.begin() && std::prev(next)->second >= run.first - 1) --next;
  while (next != runs_.end() && next->first <= run.last + 1) {
    const Step overlap = std::min(next->second, run.last) - std::max(next->first, run.first) + 1;
    added -= static_cast<uint64_t>(std::max<Step>(overlap, 0));
    run.first = std::min(run.first, next->first);
    run.last = std::max(run.last, next->second);
    next = runs_.erase(next);
  }
  runs_.emplace_hint(next, run.first, run.last);
  if (runs_.size() > kMaxRuns) runs_.erase(runs_.begin());
  return added;
}

std::vector<StepSet::Run> StepSet::TakeAbove(Step step) {
  std::vector<Run> taken;
  auto next = runs_.upper_bound(step);
  if (next != runs_.begin() && std::prev(next)->second > step) {
    const auto cut = std::prev(next);
    taken.push_back({step + 1, cut->second});
    cut->second = step;
  }
  for (auto it = next; it != runs_.end(); ++it) taken.push_back({it->first, it->second});
  runs_.erase(next, runs_.end());
  return taken;
}

}  // namespace torchps
