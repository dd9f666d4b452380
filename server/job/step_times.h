#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

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

}  // namespace torchps
