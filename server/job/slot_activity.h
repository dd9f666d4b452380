#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/types.h"

namespace torchps {

// Estimates how long the steps of each slot take at one server: from the answer to a pull to the
// end of the push computed from it.
//
// Not thread-safe: the owner locks. Time is always the caller's `now`.
class StepTimes {
 public:
  void PullAnswered(SlotId slot, absl::Duration now) { slots_[slot].pulled = now; }

  // Ignores a push without a pull before it, for example a repeated push.
  void PushEnded(SlotId slot, absl::Duration now) {
    Slot& state = slots_[slot];
    if (state.pulled == absl::InfiniteDuration()) return;
    state.steps[state.measured++ % kSteps] = now - state.pulled;
    state.pulled = absl::InfiniteDuration();
  }

  // Returns the median of the slot's recent steps, so that one pause does not change the estimate.
  // Infinite if no step was measured, for example after a server restart.
  absl::Duration Usual(SlotId slot) const {
    const auto found = slots_.find(slot);
    if (found == slots_.end() || found->second.measured == 0) return absl::InfiniteDuration();
    const Slot& state = found->second;
    std::vector<absl::Duration> steps(state.steps.begin(),
                                      state.steps.begin() + std::min(state.measured, kSteps));
    const auto middle = steps.begin() + steps.size() / 2;
    std::nth_element(steps.begin(), middle, steps.end());
    return *middle;
  }

 private:
  static constexpr size_t kSteps = 5;

  struct Slot {
    // Infinite if the slot did not pull since the last push.
    absl::Duration pulled = absl::InfiniteDuration();
    std::array<absl::Duration, kSteps> steps;  // ring buffer
    size_t measured = 0;
  };

  std::map<SlotId, Slot> slots_;
};

// Records when each slot last pulled or pushed, and for how long the slot's trainer is stalled. The
// server uses this to report the slot that others wait for.
//
// Thread-safe and wait-free, because each frame calls it. Slots are within [0, kMaxSlots). Borrows
// the clock.
class SlotActivity {
 public:
  explicit SlotActivity(const Clock* clock) : clock_(clock) {}

  // Records that the slot entered, pulled or pushed.
  void RecordCall(SlotId slot) {
    heard_ns_[slot].store(absl::ToInt64Nanoseconds(clock_->Now()), std::memory_order_relaxed);
  }
  // Records how long the slot's trainer has been in one piece of work, as the heartbeat reports.
  void Says(SlotId slot, absl::Duration stalled_for) {
    stalled_ns_[slot].store(absl::ToInt64Nanoseconds(stalled_for), std::memory_order_relaxed);
  }

  // REQUIRES: RecordCall() was called for the slot.
  absl::Duration silence(SlotId slot) const {
    return clock_->Now() - absl::Nanoseconds(heard_ns_[slot].load(std::memory_order_relaxed));
  }
  absl::Duration stalled_for(SlotId slot) const {
    return absl::Nanoseconds(stalled_ns_[slot].load(std::memory_order_relaxed));
  }

 private:
  const Clock* const clock_;
  std::array<std::atomic<int64_t>, kMaxSlots> heard_ns_{};
  std::array<std::atomic<int64_t>, kMaxSlots> stalled_ns_{};
};

}  // namespace torchps
