#pragma once

#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// For how long a slot made no step though nothing had been done to it: told of faults, it judges
// the times at which slots did steps. Times are of one clock. Not thread-safe.
//
// Between two steps a slot that a fault has hit meanwhile stood still for that reason, and is not
// judged. A server that is away (dead, frozen, or coming back) is waited for by all; that time is
// no stall, but all that comes after it is.
class NemesisStalls {
 public:
  // Returns the fault's number, for End(). `hit`: the slots that it is done to.
  int Begin(std::set<SlotId> hit, bool server_is_away, absl::Duration now);
  // The first end counts.
  void End(int fault, absl::Duration now);

  struct Verdict {
    // Of slots that no fault had hit, without the time that a server was away; and with it.
    absl::Duration longest = absl::ZeroDuration();
    absl::Duration longest_in_all = absl::ZeroDuration();
    // Where the longest ended, and whose it was.
    absl::Duration at = absl::ZeroDuration();
    SlotId slot = -1;
    // Times between two steps that were judged, and that a fault of the slot's own explains.
    int64_t judged = 0;
    int64_t explained = 0;
  };
  // `done`: of each slot, when it did its steps, in order.
  Verdict Judge(const std::vector<std::vector<absl::Duration>>& done) const;

 private:
  struct Fault {
    std::set<SlotId> hit;
    bool server_is_away;
    absl::Duration began;
    absl::Duration ended = absl::InfiniteDuration();
  };
  // Of the time between, how much a server was away.
  absl::Duration Away(absl::Duration begin, absl::Duration end) const;

  std::vector<Fault> faults_;  // by number, and so by when they began
};

}  // namespace torchps
