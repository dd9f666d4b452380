#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// What live slots say of themselves with their renewals: which servers answer them no more, and for
// how long their trainers have been at one piece of work. From the first follows who is cut off
// from a server that others still reach: nobody should wait for that one. A server that answers
// nobody is away, and all wait for it.
//
// Not thread-safe. Time is handed in and must not go back.
class SlotViews {
 public:
  // `lease`: a slot renews at least every third of it, and calls a server silent after all of it.
  explicit SlotViews(absl::Duration lease) : lease_(lease) {}

  // `slot` says so. Returns whether it is cut off: another slot has said for so long that it
  // reaches one of the `silent` servers that it would have noticed by now if that were away. A slot
  // comes to that a lease, at most, after it first called the server silent.
  bool Hear(SlotId slot, const std::vector<int>& silent, absl::Duration standing,
            absl::Duration now);

  // The slot is gone, and what it said.
  void Forget(SlotId slot) { views_.erase(slot); }

  // As it said last; zero: it is at no work of its own, or has said nothing.
  absl::Duration standing(SlotId slot) const;

 private:
  struct View {
    absl::Duration heard;
    absl::Duration standing;
    std::map<int, absl::Duration> silent_since;  // by server
  };

  // Whether another slot than `slot` still reaches `server`.
  bool OthersReach(SlotId slot, int server, absl::Duration since, absl::Duration now) const;

  const absl::Duration lease_;
  std::map<SlotId, View> views_;
};

}  // namespace torchps
