#pragma once

#include <map>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/ids.h"

namespace torchps {

// What live slots say of themselves with their renewals: when each server last answered them, and
// for how long their trainers have been at one piece of work. From the first follows who is cut off
// from a server that others still reach: nobody should wait for that one. A server that answers
// nobody is away, and all wait for it.
//
// A slot is cut off from a server that
//   - has not answered it for a lease, and
//   - has answered each renewal of some other slot for a lease, lately too, among them one that
//     began a quarter of a lease after the first that this slot missed.
// The last is what tells the two cases apart, whatever the phases of the slots' renewals: a server
// that is away for all answers nothing that was asked later. What the quarter allows for is a
// server's time for an answer, and a request's way to here.
//
// Not thread-safe. Time is handed in and must not go back.
class SlotViews {
 public:
  // How a slot's renewals at one server went, by the coordinator's clock: no time is earlier than
  // it was, and later by no more than the request's way to here.
  struct Contact {
    absl::Duration answered;                       // the last that was
    absl::optional<absl::Duration> missed;         // the first since then that was not began
    absl::optional<absl::Duration> first_reached;  // all from that one, which began then,
    absl::Duration last_reached;                   // to this one were answered
  };

  // `lease`: a slot renews at least every third of it, and while it misses a server every eighth.
  explicit SlotViews(absl::Duration lease) : lease_(lease) {}

  // `slot` says so, of each server that has let it in. Returns whether it is cut off from one.
  bool Hear(SlotId slot, std::map<int, Contact> contacts, absl::Duration stalled_for,
            absl::Duration now);

  // To be called often. Where it was not, this process stood still, and so did what was said to it
  // meanwhile: what it hears next may be old, and counts for nobody.
  void Pass(absl::Duration now);

  // The slot is gone, and what it said.
  void Forget(SlotId slot) { views_.erase(slot); }

  // As it said last; zero: it is at no work of its own, or has said nothing.
  absl::Duration stalled_for(SlotId slot) const;

 private:
  struct View {
    absl::Duration stalled_for;
    std::map<int, Contact> contacts;  // by server
  };

  bool IsCutOff(SlotId slot, int server, const Contact& own, absl::Duration now) const;

  const absl::Duration lease_;
  absl::optional<absl::Duration> passed_;
  absl::Duration blind_until_ = -absl::InfiniteDuration();
  std::map<SlotId, View> views_;
};

}  // namespace torchps
