#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// The slots that one parameter server knows: which incarnation of each may speak, whether it is
// alive, and how far it is.
//
// A slot enters by Hello and is live until it leaves or its lease runs out; a live slot's clock
// counts in the floor (min clock). The floor never falls: a slot that enters starts at it or above
// it. Not thread-safe: the owner locks. Knows no time but the `now` handed in.
class SlotClocks {
 public:
  struct Slot {
    Incarnation incarnation = 0;  // 0: expected, of no process yet
    Incarnation least = 0;        // of those that may enter, by what is known of an earlier life
    bool live = false;
    bool pulled = false;  // since it entered
    Step clock = 0;
    absl::Duration lease_until = absl::ZeroDuration();
  };

  // `lease`: how long a slot lives on after its last call.
  explicit SlotClocks(absl::Duration lease) : lease_(lease) {}

  // May this incarnation take the slot? ABORTED if a higher one already has, in this life of the
  // server or in one that Expect() tells of; INVALID_ARGUMENT for a slot outside [0, kMaxSlots) and
  // for incarnation 0.
  absl::Status CheckEntry(SlotId slot, Incarnation incarnation) const;

  // Makes the slot live. An incarnation that is live, or was expected, keeps its clock; another one
  // starts at max(floor, own_step), where `own_step` is the highest step of its own that all blocks
  // have seen. What another incarnation has pushed under this slot does not count: one that was
  // taken over may have been further here, after a restart, than its successor is, and two slots
  // so held up would wait for each other at two servers.
  // Returns the slot's clock. REQUIRES: CheckEntry() is OK.
  Step Enter(SlotId slot, Incarnation incarnation, Step own_step, absl::Duration now);

  // The slot was at `clock` in an earlier life of this server, and `incarnation` held it: it is
  // live without a process until its lease runs out, and `incarnation` keeps its clock if it enters
  // by then, so that slots that come back first do not go on alone. An incarnation that
  // `incarnation` has superseded does not enter any more. REQUIRES: no slot has entered yet.
  void Expect(SlotId slot, Step clock, Incarnation incarnation, absl::Duration now);

  // OK if this incarnation is the slot's live one, and renews its lease. ABORTED otherwise: the
  // worker says Hello again.
  absl::Status Renew(SlotId slot, Incarnation incarnation, absl::Duration now);

  // The clock by which a pull of this live slot is judged: the recorded one, or the claimed one
  // where that is higher. The first pull after entering also records its claim, since a worker
  // starts at the highest clock that any of its servers gave it. Later claims record nothing, so a
  // worker cannot talk itself past the staleness bound. Of a pull `ahead` of the push of step
  // `claimed`, the step before is what it may record.
  Step BeginPull(SlotId slot, Step claimed, bool ahead = false);

  // Raises the clock of a live slot; a lower value changes nothing.
  void Advance(SlotId slot, Step clock);

  // The slot stops counting. Leaving twice, or after a newer incarnation came, changes nothing.
  void Leave(SlotId slot, Incarnation incarnation);

  // The same, and for good: that incarnation, whose slot may be another's by now, does not enter
  // any more, nor does an earlier one.
  void End(SlotId slot, Incarnation incarnation);

  // Drops every slot whose lease has run out by `now`; returns them.
  std::vector<SlotId> Expire(absl::Duration now);

  // Min clock over live slots; while no slot is live, what it was.
  Step min_clock() const { return min_clock_; }

  const std::map<SlotId, Slot>& slots() const { return slots_; }

 private:
  void RaiseMinClock();

  const absl::Duration lease_;
  std::map<SlotId, Slot> slots_;
  Step min_clock_ = 0;
};

}  // namespace torchps
