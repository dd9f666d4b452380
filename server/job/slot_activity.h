#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"

namespace torchps {

// When a server last heard each slot pull or push, and what the slot's heartbeat says of its
// trainer: by that a server tells for whom it waits.
//
// Thread-safe; no call waits, for every frame tells. Slots are within [0, kMaxSlots). Borrows the
// clock.
class SlotActivity {
 public:
  explicit SlotActivity(const Clock* clock) : clock_(clock) {}

  // The slot has entered, pulled or pushed.
  void Heard(SlotId slot) {
    heard_ns_[slot].store(absl::ToInt64Nanoseconds(clock_->Now()), std::memory_order_relaxed);
  }
  // For how long the slot's trainer has been at one piece of its own work.
  void Says(SlotId slot, absl::Duration stalled_for) {
    stalled_ns_[slot].store(absl::ToInt64Nanoseconds(stalled_for), std::memory_order_relaxed);
  }

  // REQUIRES: Heard().
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
