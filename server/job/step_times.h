#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// How long the steps of each slot usually take, as one server sees them: from the answer to a pull
// to the end of the push that was computed from it.
//
// Not thread-safe: the owner locks. Knows no time but the `now` handed in.
class StepTimes {
 public:
  void PullAnswered(SlotId slot, absl::Duration now) { slots_[slot].pulled = now; }

  // A push without a pull before it, as one that is repeated, is not measured.
  void PushEnded(SlotId slot, absl::Duration now) {
    Slot& state = slots_[slot];
    if (state.pulled == absl::InfiniteDuration()) return;
    state.steps[state.measured++ % kSteps] = now - state.pulled;
    state.pulled = absl::InfiniteDuration();
  }

  // The median of the slot's last steps, so that a pause does not change it. Infinite: none was
  // measured, as after a restart of this server.
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
    // Infinite: no pull since the last push.
    absl::Duration pulled = absl::InfiniteDuration();
    std::array<absl::Duration, kSteps> steps;  // a ring
    size_t measured = 0;
  };

  std::map<SlotId, Slot> slots_;
};

}  // namespace torchps
