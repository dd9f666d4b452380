#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps::simulation {

// A second implementation of the clock in the whole-batch rule: the slots that wait for an update
// at one server, and how many turns of waiting each of them has behind it. A turn is `patience`
// times the slot's usual step, and at least 50 ms. The usual step is the median of the slot's last
// five times from the answer to a pull until the end of the push computed from it; before the first
// one it is the length of a lease.
//
// The specification does not say which of two middle values the median is, nor exactly when the
// next turn begins. So there are two counts: an early update is allowed by MostTurns() and required
// by LeastTurns().
class PatienceModel {
 public:
  PatienceModel(double patience, absl::Duration lease) : patience_(patience), lease_(lease) {}

  void OnDeath() { slots_.clear(); }
  void OnPull(SlotId slot) { slots_[slot].ended.reset(); }
  void OnPullAnswered(SlotId slot, absl::Duration now) { slots_[slot].pulled = now; }
  // The last frame of a push has come. kThis: a block has collected its part of this push.
  // kAnother: only parts of another push of the slot are collected, and this one is a late repeat.
  // The server may take its end for the other one's.
  enum class Waits { kNothing, kAnother, kThis };
  void OnPushEnd(SlotId slot, Incarnation incarnation, Step step, Waits waits, absl::Duration now);
  // No block here has anything of the slot collected any more.
  void OnSettled(SlotId slot, absl::Duration now);
  // The server makes the updates that are due by time.
  void OnHousekeeping(absl::Duration now);

  // The slot's push has come to its end, and the slot has not pulled since.
  bool HasEnded(SlotId slot) const;
  // The same, and it may be that the slot waits for another block, here or on another server.
  bool MayWait(SlotId slot, absl::Duration now) const;

  int MostTurns(SlotId slot, absl::Duration now) const;
  int LeastTurns(SlotId slot) const;
  // The latest time at which the server must wake up for this slot; infinite: never.
  absl::Duration Due(SlotId slot) const;
  std::vector<SlotId> Waiting() const;

 private:
  struct Wait {
    absl::Duration since;
    absl::Duration shortest_turn;
    // Counted from the end of the slot's own push.
    absl::Duration longest_turn = absl::InfiniteDuration();
    absl::Duration due = absl::InfiniteDuration();  // the end of the next turn
    int turns = 0;                                  // completed
  };
  struct Slot {
    std::optional<absl::Duration> pulled;  // since the last push ended
    std::optional<absl::Duration> ended;   // the last push, since the last pull
    absl::Duration settled;
    Incarnation incarnation = 0;  // of the last push that ended
    Step step = 0;
    std::vector<absl::Duration> steps;  // all of them
    std::optional<Wait> wait;
  };

  const double patience_;
  const absl::Duration lease_;
  std::map<SlotId, Slot> slots_;
};

}  // namespace torchps::simulation
