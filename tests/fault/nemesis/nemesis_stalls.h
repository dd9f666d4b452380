#pragma once

#include <set>
#include <vector>

#include "absl/time/time.h"
#include "torchps/common/types.h"

namespace torchps {

// Measures how long a slot made no step although no fault hit it. Callers report the faults and
// then the times of the slots' steps, all from the same clock. Not thread-safe.
//
// The interval between two steps is not judged if a fault hit the slot in it. All slots wait for a
// server that is away (dead, frozen, or restarting). That time is not a stall, but the time after
// it is.
class NemesisStalls {
 public:
  // Returns the fault's number, for End(). `hit` contains the affected slots.
  int Begin(std::set<SlotId> hit, bool server_is_away, absl::Duration now);
  // Ends a fault. Later calls for the same fault have no effect.
  void End(int fault, absl::Duration now);

  struct Verdict {
    // The longest stall of a slot without a fault. `longest` leaves out the time that a server was
    // away; `longest_in_all` includes it.
    absl::Duration longest = absl::ZeroDuration();
    absl::Duration longest_in_all = absl::ZeroDuration();
    // The end and the slot of the longest stall.
    absl::Duration at = absl::ZeroDuration();
    SlotId slot = -1;
    // Intervals between two steps: judged, and explained by a fault of the slot.
    int64_t judged = 0;
    int64_t explained = 0;
  };
  // `done` contains the times of each slot's steps, in order.
  Verdict Judge(const std::vector<std::vector<absl::Duration>>& done) const;

 private:
  struct Fault {
    std::set<SlotId> hit;
    bool server_is_away;
    absl::Duration began;
    absl::Duration ended = absl::InfiniteDuration();
  };
  // Returns the time between `begin` and `end` that a server was away.
  absl::Duration Away(absl::Duration begin, absl::Duration end) const;

  std::vector<Fault> faults_;  // by number, and so by the time they began
};

}  // namespace torchps
