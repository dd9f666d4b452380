#include "torchps/server/job/job_membership.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace torchps {

JobMembership::JobMembership(const JobParts& parts, PushSegments* segments, const Clock* clock)
    : has_rounds_(parts.has_rounds()),
      by_clock_(!AppliesWholeBatches(parts.spec.consistency())),
      store_(parts.store.get()),
      policy_(parts.policy.get()),
      segments_(segments),
      clock_(clock),
      clocks_(absl::Seconds(parts.spec.membership().lease_seconds())) {}

absl::StatusOr<JobMembership::Entry> JobMembership::Enter(SlotId slot, Incarnation incarnation) {
  Entry told;
  {
    MutexLock change(&change_mutex_);
    {
      MutexLock lock(&mutex_);
      const absl::Status entry = clocks_.CheckEntry(slot, incarnation);
      if (!entry.ok()) return entry;
    }
    live_incarnation_[slot].store(incarnation);
    const std::vector<LedgerEntry> entries = store_->GetEntries(slot);
    // If the slot's last push was cut short, only some blocks have its step. The slot's own step is
    // the last one that all blocks have.
    Step own_step = entries.empty() ? 0 : std::numeric_limits<Step>::max();
    for (const LedgerEntry& entry : entries) {
      told.last_step = std::max(told.last_step, entry.last_step);
      own_step = std::min(own_step, entry.incarnation == incarnation ? entry.last_step : Step{0});
    }
    if (has_rounds_) own_step = std::max(own_step, policy_->completed_rounds());
    MutexLock lock(&mutex_);
    clocks_.Enter(slot, incarnation, own_step, clock_->Now());
  }
  Announce();
  told.min_clock = min_clock();
  return told;
}

void JobMembership::ExpectRestored() {
  {
    MutexLock lock(&mutex_);
    for (const auto& [slot, history] : store_->snapshot().Histories()) {
      clocks_.Expect(slot, history.clock, history.incarnation, clock_->Now());
    }
  }
  Announce();
}

absl::Status JobMembership::Renew(SlotId slot, Incarnation incarnation) {
  MutexLock lock(&mutex_);
  return clocks_.Renew(slot, incarnation, clock_->Now());
}

void JobMembership::Leave(SlotId slot, Incarnation incarnation) {
  if (slot < 0 || slot >= kMaxSlots) return;
  {
    MutexLock change(&change_mutex_);
    segments_->Close(slot, incarnation);
    Incarnation expected = incarnation;
    live_incarnation_[slot].compare_exchange_strong(expected, 0);
    MutexLock lock(&mutex_);
    clocks_.Leave(slot, incarnation);
  }
  Announce();
}

void JobMembership::End(SlotId slot, Incarnation incarnation) {
  if (slot < 0 || slot >= kMaxSlots) return;
  Leave(slot, incarnation);
  MutexLock change(&change_mutex_);
  MutexLock lock(&mutex_);
  clocks_.End(slot, incarnation);
}

bool JobMembership::ExpireLeases() {
  std::vector<SlotId> expired;
  {
    MutexLock change(&change_mutex_);
    MutexLock lock(&mutex_);
    expired = clocks_.Expire(clock_->Now());
    for (const SlotId slot : expired) segments_->Close(slot, live_incarnation_[slot].exchange(0));
  }
  if (expired.empty()) return false;
  Announce();
  return true;
}

absl::Status JobMembership::Admit(SlotId slot, Incarnation incarnation) const {
  const bool can_be = slot >= 0 && slot < kMaxSlots && incarnation != 0;
  if (can_be && live_incarnation_[slot].load() == incarnation) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("incarnation ", incarnation, " of slot ", slot,
                                         " is not live at this server; say Hello again"));
}

absl::StatusOr<JobMembership::PullClock> JobMembership::BeginPull(SlotId slot,
                                                                  Incarnation incarnation,
                                                                  Step claimed, bool ahead) {
  PullClock pull;
  {
    MutexLock lock(&mutex_);
    const absl::Status live = clocks_.Renew(slot, incarnation, clock_->Now());
    if (!live.ok()) return live;
    const Step before = clocks_.slots().at(slot).clock;
    pull.judged = clocks_.BeginPull(slot, claimed, ahead);
    pull.recorded = clocks_.slots().at(slot).clock;
    pull.jumped = pull.recorded > before;
  }
  // Another server was ahead when this slot entered. Rounds up to the slot's clock do not wait for
  // the slot.
  if (pull.jumped) Announce();
  return pull;
}

std::optional<Step> JobMembership::Advance(SlotId slot, Incarnation incarnation, Step step) {
  MutexLock lock(&mutex_);
  const auto it = clocks_.slots().find(slot);
  if (it == clocks_.slots().end() || it->second.incarnation != incarnation) return std::nullopt;
  clocks_.Advance(slot, step);
  return it->second.clock;
}

int64_t JobMembership::min_clock() const {
  if (has_rounds_) return policy_->completed_rounds();
  MutexLock lock(&mutex_);
  return clocks_.min_clock();
}

int JobMembership::live_slots() const {
  return static_cast<int>(
      std::count_if(live_incarnation_.begin(), live_incarnation_.end(),
                    [](const std::atomic<Incarnation>& live) { return live.load() != 0; }));
}

std::optional<JobMembership::Behind> JobMembership::FurthestBehind(
    const SlotActivity& activity) const {
  std::optional<Behind> found;
  Step lowest = 0;
  MutexLock lock(&mutex_);
  for (const SlotId slot : clocks_.live()) {
    const SlotClocks::Slot& state = clocks_.slots().at(slot);
    if (state.incarnation == 0) continue;
    // In WHOLE_BATCH a clock says only how many pushes the slot made. And the other slots do not
    // wait for a slot after its contribution.
    if (!by_clock_ && !policy_->IsSettled(slot, state.clock)) continue;
    const Step clock = by_clock_ ? state.clock : 0;
    const absl::Duration silence = activity.silence(slot);
    if (found.has_value() && (clock > lowest || (clock == lowest && silence <= found->silence))) {
      continue;
    }
    lowest = clock;
    found = Behind{slot, silence};
  }
  return found;
}

std::map<SlotId, SlotClocks::Slot> JobMembership::slots() const {
  MutexLock lock(&mutex_);
  return clocks_.slots();
}

void JobMembership::Announce() {
  MutexLock change(&change_mutex_);
  std::vector<LiveSlot> live;
  {
    MutexLock lock(&mutex_);
    for (const SlotId slot : clocks_.live()) {
      live.push_back({slot, clocks_.slots().at(slot).clock});
    }
  }
  store_->SetLive(live);
}

}  // namespace torchps
