#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"

namespace torchps {

// Records when each slot last pulled or pushed, and for how long the slot's trainer is stalled. The
// server uses this to report the slot that others wait for.
//
// Thread-safe and wait-free, because each frame calls it. Slots are within [0, kMaxSlots). Borrows
// the clock.
class SlotActivity {
 public:
  explicit SlotActivity(const Clock* clock) : clock_(clock) {}

  // Records that the slot entered, pulled or pushed.
  void Heard(SlotId slot) {
    heard_ns_[slot].store(absl::ToInt64Nanoseconds(clock_->Now()), std::memory_order_relaxed);
  }
  // Records how long the slot's trainer has been in one piece of work, as the heartbeat reports.
  void Says(SlotId slot, absl::Duration stalled_for) {
    stalled_ns_[slot].store(absl::ToInt64Nanoseconds(stalled_for), std::memory_order_relaxed);
  }

  // REQUIRES: Heard() was called for the slot.
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
