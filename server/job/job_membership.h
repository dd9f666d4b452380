#pragma once

#include <array>
#include <atomic>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "server/job/job_parts.h"
#include "server/job/slot_activity.h"
#include "server/job/slot_clocks.h"
#include "shm/push_segments.h"

namespace torchps {

// The slots of a job at one server: which incarnation of each is live, how far it is, and when its
// lease runs out. Each change of the live slots is told to the store, in order, and lets go of the
// memory that a slot shared.
//
// Thread-safe. After Enter, Leave, ExpireLeases and a pull that jumped, the floor may have risen:
// the caller looks at floor(). Borrows what it is made of.
class JobMembership {
 public:
  // What a slot is told when it enters.
  struct Entry {
    int64_t min_clock = 0;
    // The last step of this slot that any block here has seen, whichever incarnation pushed it.
    Step last_step = 0;
  };

  struct PullClock {
    Step judged = 0;      // the clock by which the gate judges the pull
    Step recorded = 0;    // the slot's own now
    bool jumped = false;  // the pull has raised it
  };

  JobMembership(const JobParts& parts, PushSegments* segments, const Clock* clock);

  // Makes the slot live. Errors as SlotClocks::CheckEntry.
  absl::StatusOr<Entry> Enter(SlotId slot, Incarnation incarnation);

  // The slots that the restored blocks know are expected back (SlotClocks::Expect). REQUIRES: the
  // store has been restored, and no slot has entered.
  void ExpectRestored();

  // As SlotClocks::Renew.
  absl::Status Renew(SlotId slot, Incarnation incarnation);
  void Leave(SlotId slot, Incarnation incarnation);
  // As SlotClocks::End.
  void End(SlotId slot, Incarnation incarnation);
  // Whether any has run out.
  bool ExpireLeases();

  // Whether a frame of this incarnation may change a block now: ABORTED if not. Any slot and any
  // incarnation may be asked for, whatever a peer has written there. To be asked under the block's
  // lock: Enter makes the new incarnation live before it reads the ledgers. So a frame of the old
  // one either had its block's lock first and is in the ledger that Enter reads, or is refused.
  absl::Status Admit(SlotId slot, Incarnation incarnation) const;

  // As SlotClocks::BeginPull; also renews the lease. ABORTED: the incarnation is not live.
  absl::StatusOr<PullClock> BeginPull(SlotId slot, Incarnation incarnation, Step claimed,
                                      bool ahead);

  // The slot's push of `step` is settled: its clock, or nothing if it was taken over meanwhile.
  absl::optional<Step> Advance(SlotId slot, Incarnation incarnation, Step step);

  // In SYNC completed rounds, else the min clock over live slots.
  int64_t min_clock() const;
  int live_slots() const;

  // The slot that the others wait for, if they wait: of the live slots with a process that are
  // furthest behind, or with whole batches have not contributed, the one that has been silent for
  // longest. Nothing where no such slot is live. REQUIRES: `activity` has heard each slot that has
  // entered.
  struct Behind {
    SlotId slot = 0;
    absl::Duration silence;  // since it was heard last
  };
  absl::optional<Behind> FurthestBehind(const SlotActivity& activity) const;

  std::map<SlotId, SlotClocks::Slot> slots() const;

 private:
  // Tells the store which slots are live.
  void Announce() ABSL_LOCKS_EXCLUDED(change_mutex_, mutex_);

  const bool has_rounds_;
  // Slots that are behind are found by their clocks.
  const bool by_clock_;
  ParameterStore* const store_;
  const PushPolicy* const policy_;
  PushSegments* const segments_;
  const Clock* const clock_;

  // By slot, 0 for none: read by every frame under its block's lock.
  std::array<std::atomic<Incarnation>, kMaxSlots> live_incarnation_{};

  // Held during a change, so that the store hears of changes in order.
  Mutex change_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  mutable Mutex mutex_;
  SlotClocks clocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
