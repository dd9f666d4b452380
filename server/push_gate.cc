#include "server/push_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<PushDecision> PushGate::Judge(const LedgerEntry& entry, Step step, Version base,
                                             Version current) const {
  if (step < 1) {
    return absl::InvalidArgumentError(absl::StrCat("step is ", step, "; expected at least 1"));
  }
  PushDecision decision;
  if (step <= entry.last_step) {
    decision.verdict = entry.last_verdict;
    decision.lag = entry.last_lag;
    decision.duplicate = true;
    return decision;
  }
  if (base < 0 || base > current) {
    return absl::InvalidArgumentError(absl::StrCat(
        "base_version is ", base, ", but the block's versions so far are 0 to ", current));
  }
  const int64_t lag = current - base;
  decision.lag = lag;
  decision.apply = true;
  decision.verdict = ACCEPTED;
  switch (contract_.policy()) {
    case LagContract::SCALE:
      if (lag > contract_.free_lag()) {
        decision.verdict = SCALED;
        decision.rate_factor = static_cast<double>(contract_.free_lag()) / lag;
      }
      break;
    case LagContract::REJECT:
      if (lag > contract_.max_lag()) {
        if (entry.rejections_in_row >= kRejectionsInRow) {
          decision.verdict = ADMITTED;
          decision.rate_factor = static_cast<double>(contract_.max_lag()) / lag;
        } else {
          decision.verdict = REJECTED_STALE;
          decision.apply = false;
        }
      }
      break;
    default:
      break;
  }
  return decision;
}

void PushGate::Record(const PushDecision& decision, Step step, LedgerEntry* entry) {
  entry->last_step = step;
  entry->last_verdict = decision.verdict;
  entry->last_lag = decision.lag;
  entry->rejections_in_row = decision.verdict == REJECTED_STALE ? entry->rejections_in_row + 1 : 0;
  if (decision.apply) ++entry->applied;
}

}  // namespace torchps
