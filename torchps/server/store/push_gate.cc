#include "torchps/server/store/push_gate.h"

#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<bool> PushGate::IsRepeat(const LedgerEntry& entry, Incarnation incarnation,
                                        Step step) {
  if (step < 1) {
    return absl::InvalidArgumentError(absl::StrCat("step is ", step, "; expected at least 1"));
  }
  if (incarnation < entry.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", incarnation,
                                           " of the slot was taken over by incarnation ",
                                           entry.incarnation, ", which has pushed since"));
  }
  return entry.HasSeen(incarnation, step);
}

absl::StatusOr<PushDecision> PushGate::Judge(const LedgerEntry& entry, Incarnation incarnation,
                                             Step step, Version base, Version current) const {
  const absl::StatusOr<bool> repeat = IsRepeat(entry, incarnation, step);
  if (!repeat.ok()) return repeat.status();
  PushDecision decision;
  if (*repeat) {
    decision.verdict = entry.last_verdict;
    decision.lag = entry.last_lag;
    decision.duplicate = true;
    return decision;
  }
  if (allows_rolled_back_) base = std::min(base, current);
  if (base < 0 || base > current) {
    return absl::InvalidArgumentError(absl::StrCat(
        "base_version is ", base, ", but the block's versions so far are 0 to ", current));
  }
  const int64_t lag = current - base;
  decision.lag = lag;
  decision.apply = true;
  decision.verdict = ACCEPTED;
  switch (contract_.policy()) {
    case LagContract::WEIGH:
      if (lag > contract_.free_lag()) {
        decision.verdict = SCALED;
        decision.gradient_factor = static_cast<double>(contract_.free_lag()) / lag;
      }
      break;
    case LagContract::REJECT:
      if (lag > contract_.max_lag()) {
        decision.verdict = REJECTED_STALE;
        decision.apply = false;
      }
      break;
    default:
      break;
  }
  return decision;
}

void PushGate::Record(const PushDecision& decision, Incarnation incarnation, Step step,
                      LedgerEntry* entry) {
  // The entry's acknowledged_step is a step of the earlier incarnation, so it is reset.
  if (entry->incarnation != incarnation) entry->acknowledged_step = 0;
  entry->incarnation = incarnation;
  entry->last_step = step;
  entry->last_verdict = decision.verdict;
  entry->last_lag = decision.lag;
  if (decision.apply) ++entry->applied;
}

}  // namespace torchps
