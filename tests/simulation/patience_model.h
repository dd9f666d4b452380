#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "torchps/common/types.h"

namespace torchps::simulation {

// Implements the patience of the whole-batch rule a second time, from docs/protocol.md. Holds the
// slots that wait for an update at one server, and the number of turns that each slot waited. Each
// turn is `patience` times the slot's usual step, and at least 50 ms. The usual step is the median
// of the slot's last five times between the answer to a pull and the end of the push computed from
// it. Until the first such time is known, it is the length of the slot lease.
//
// The specification does not define the median of an even number of values, nor exactly when the
// next turn begins. So there are two counts: an early update is allowed by MostTurns() and required
// by LeastTurns().
class PatienceModel {
 public:
  PatienceModel(double patience, absl::Duration lease) : patience_(patience), lease_(lease) {}

  void OnDeath() { slots_.clear(); }
  void OnPull(SlotId slot, absl::Duration now);
  void OnPullAnswered(SlotId slot, absl::Duration now) { slots_[slot].pulled = now; }
  // Reports the last frame of a push. kNothing: no block collected a push of the slot. kThis: a
  // block collected a part of this push. kAnother: blocks collected only parts of another push of
  // the slot, and this push is a late repeat. The server may confuse the ends of the two pushes.
  enum class Waits { kNothing, kAnother, kThis };
  void OnPushEnd(SlotId slot, Incarnation incarnation, Step step, Waits waits, absl::Duration now);
  // Reports that the slot's pushes are no longer collected in any block of the server.
  void OnSettled(SlotId slot, absl::Duration now);
  // Reports that the server makes the updates that are due.
  void OnHousekeeping(absl::Duration now);

  // True if the slot's push ended and the slot did not pull since.
  bool HasEnded(SlotId slot) const;
  // Like HasEnded(), and the slot may wait for another block, on this or another server. Also true
  // when the pull begins: the server may make updates before it takes note of the pull.
  bool MayWait(SlotId slot, absl::Duration now) const;

  int MostTurns(SlotId slot, absl::Duration now) const;
  int LeastTurns(SlotId slot) const;
  // Returns the latest time at which the server must wake up for this slot; infinite if never.
  absl::Duration Due(SlotId slot) const;
  std::vector<SlotId> Waiting() const;

 private:
  struct Wait {
    absl::Duration since;
    absl::Duration shortest_turn;
    // Infinite until the slot's push ends. Turns of this length begin at that end.
    absl::Duration longest_turn = absl::InfiniteDuration();
    absl::Duration due = absl::InfiniteDuration();  // the end of the next turn
    int turns = 0;                                  // completed
  };
  struct Slot {
    std::optional<absl::Duration> pulled;  // when a pull was answered after the last push
    std::optional<absl::Duration> ended;   // when a push ended after the last pull
    // The last pull that followed a push: when it began, and when the push ended.
    absl::Duration pull_began = -absl::InfiniteDuration();
    absl::Duration ended_before_pull;
    absl::Duration settled;
    Incarnation incarnation = 0;  // of the last push that ended
    Step step = 0;
    std::vector<absl::Duration> steps;  // all measured step times
    std::optional<Wait> wait;
  };

  const double patience_;
  const absl::Duration lease_;
  std::map<SlotId, Slot> slots_;
};

}  // namespace torchps::simulation
