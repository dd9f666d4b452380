#include "torchps/server/job/slot_clocks.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {

absl::Status SlotClocks::CheckEntry(SlotId slot, Incarnation incarnation) const {
  if (slot < 0 || slot >= kMaxSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot is ", slot, "; expected 0 to ", kMaxSlots - 1));
  }
  if (incarnation == 0) return absl::InvalidArgumentError("incarnation is 0; expected at least 1");
  const auto it = slots_.find(slot);
  if (it == slots_.end()) return absl::OkStatus();
  const Incarnation known = std::max(it->second.incarnation, it->second.least);
  if (incarnation >= known) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("slot ", slot, " was taken over: incarnation ",
                                         incarnation, " is older than ", known));
}

Step SlotClocks::Enter(SlotId slot, Incarnation incarnation, Step own_step, absl::Duration now) {
  Slot& state = slots_[slot];
  TPS_CHECK(state.incarnation <= incarnation, "an older incarnation entered");
  // Expect() does not raise min_clock_, because a slot with a lower clock may be expected next. So
  // min_clock_ may be too low before the first slot enters.
  RaiseMinClock();
  const Incarnation holder = state.incarnation > 0 ? state.incarnation : state.least;
  if (!state.live || holder != incarnation) {
    state.clock = std::max(min_clock_, own_step);
    state.pulled = false;
  }
  state.incarnation = incarnation;
  SetLive(slot, &state, true);
  state.lease_until = now + lease_;
  RaiseMinClock();
  return state.clock;
}

void SlotClocks::Expect(SlotId slot, Step clock, Incarnation incarnation, absl::Duration now) {
  Slot& state = slots_[slot];
  TPS_CHECK(state.incarnation == 0, "a slot is expected that has entered");
  state.least = incarnation;
  state.clock = clock;
  SetLive(slot, &state, true);
  state.lease_until = now + lease_;
}

absl::Status SlotClocks::Renew(SlotId slot, Incarnation incarnation, absl::Duration now) {
  const auto it = slots_.find(slot);
  if (it == slots_.end() || !it->second.live || it->second.incarnation != incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", incarnation, " of slot ", slot,
                                           " is not live at this server; say Hello again"));
  }
  it->second.lease_until = now + lease_;
  return absl::OkStatus();
}

Step SlotClocks::BeginPull(SlotId slot, Step claimed, bool ahead) {
  Slot& state = slots_[slot];
  const Step clock = std::max(state.clock, claimed);
  if (state.live && !state.pulled) {
    state.pulled = true;
    Advance(slot, ahead ? claimed - 1 : claimed);
  }
  return clock;
}

void SlotClocks::Advance(SlotId slot, Step clock) {
  const auto it = slots_.find(slot);
  if (it == slots_.end() || !it->second.live || it->second.clock >= clock) return;
  it->second.clock = clock;
  RaiseMinClock();
}

void SlotClocks::Leave(SlotId slot, Incarnation incarnation) {
  const auto it = slots_.find(slot);
  if (it == slots_.end() || it->second.incarnation != incarnation) return;
  SetLive(slot, &it->second, false);
  RaiseMinClock();
}

void SlotClocks::End(SlotId slot, Incarnation incarnation) {
  Leave(slot, incarnation);
  Slot& state = slots_[slot];
  state.least = std::max(state.least, incarnation + 1);
}

std::vector<SlotId> SlotClocks::Expire(absl::Duration now) {
  std::vector<SlotId> expired;
  for (const SlotId slot : live_) {
    if (slots_.at(slot).lease_until <= now) expired.push_back(slot);
  }
  for (const SlotId slot : expired) SetLive(slot, &slots_.at(slot), false);
  if (!expired.empty()) RaiseMinClock();
  return expired;
}

void SlotClocks::RaiseMinClock() {
  Step lowest = std::numeric_limits<Step>::max();
  for (const SlotId slot : live_) lowest = std::min(lowest, slots_.at(slot).clock);
  if (!live_.empty()) min_clock_ = std::max(min_clock_, lowest);
}

void SlotClocks::SetLive(SlotId slot, Slot* state, bool live) {
  state->live = live;
  if (live) {
    live_.insert(slot);
  } else {
    live_.erase(slot);
  }
}

}  // namespace torchps
