#include "tests/fault/nemesis/nemesis_stalls.h"

#include <algorithm>
#include <utility>

namespace torchps {

int NemesisStalls::Begin(std::set<SlotId> hit, bool server_is_away, absl::Duration now) {
  faults_.push_back({std::move(hit), server_is_away, now});
  return static_cast<int>(faults_.size()) - 1;
}

void NemesisStalls::End(int fault, absl::Duration now) {
  Fault& ended = faults_[static_cast<size_t>(fault)];
  ended.ended = std::min(ended.ended, now);
}

NemesisStalls::Verdict NemesisStalls::Judge(
    const std::vector<std::vector<absl::Duration>>& done) const {
  Verdict verdict;
  for (size_t slot = 0; slot < done.size(); ++slot) {
    for (size_t i = 1; i < done[slot].size(); ++i) {
      const absl::Duration begin = done[slot][i - 1];
      const absl::Duration end = done[slot][i];
      const bool hit = std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
        return fault.began <= end && fault.ended >= begin &&
               fault.hit.count(static_cast<SlotId>(slot)) > 0;
      });
      if (hit) {
        ++verdict.explained;
        continue;
      }
      ++verdict.judged;
      verdict.longest_in_all = std::max(verdict.longest_in_all, end - begin);
      const absl::Duration stall = end - begin - Away(begin, end);
      if (stall <= verdict.longest) continue;
      verdict.longest = stall;
      verdict.at = end;
      verdict.slot = static_cast<SlotId>(slot);
    }
  }
  return verdict;
}

absl::Duration NemesisStalls::Away(absl::Duration begin, absl::Duration end) const {
  absl::Duration away;
  for (const Fault& fault : faults_) {
    if (!fault.server_is_away) continue;
    // Leaves out the time that an earlier fault covers, which is already added.
    begin = std::max(begin, fault.began);
    const absl::Duration until = std::min(end, fault.ended);
    if (until <= begin) continue;
    away += until - begin;
    begin = until;
  }
  return away;
}

}  // namespace torchps
