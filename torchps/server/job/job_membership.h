#pragma once

#include <array>
#include <atomic>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/server/job/job_parts.h"
#include "torchps/server/job/slot_clocks.h"
#include "torchps/transport/push_segments.h"

namespace torchps {

// Tracks the slots of a job at one server: each slot's live incarnation, clock and lease. After
// each change, it passes the live slots to the store, in order, and frees the memory that a gone
// slot shared.
//
// Thread-safe. Enter, Leave, ExpireLeases and a pull that raises its slot's clock may raise
// min_clock(), so the caller must check min_clock() afterwards. Borrows the constructor's
// arguments.
class JobMembership {
 public:
  // The result of Enter().
  struct Entry {
    int64_t min_clock = 0;
    // The last step of this slot that any block here has seen, from any incarnation.
    Step last_step = 0;
  };

  struct PullClock {
    Step judged = 0;      // the clock that the gate uses for the pull
    Step recorded = 0;    // the slot's clock after the pull
    bool jumped = false;  // the pull raised the slot's clock
  };

  JobMembership(const JobParts& parts, PushSegments* segments, const Clock* clock);

  // Makes the slot live. Errors as SlotClocks::CheckEntry.
  absl::StatusOr<Entry> Enter(SlotId slot, Incarnation incarnation);

  // Expects the slots in the ledgers of the restored blocks to return (SlotClocks::Expect).
  // REQUIRES: the store has been restored, and no slot has entered.
  void ExpectRestored();

  // As SlotClocks::Renew.
  absl::Status Renew(SlotId slot, Incarnation incarnation);
  void Leave(SlotId slot, Incarnation incarnation);
  // As SlotClocks::End.
  void End(SlotId slot, Incarnation incarnation);
  // Drops the slots with expired leases. Returns true if there were any.
  bool ExpireLeases();

  // Returns OK if a frame of this incarnation may change a block now, and ABORTED otherwise.
  // Accepts any slot and incarnation that a peer may send. Must be called under the block's lock.
  // Enter() makes the new incarnation live before it reads the ledgers, so a frame of the old one
  // either is in the ledger that Enter() reads, or is refused.
  absl::Status Admit(SlotId slot, Incarnation incarnation) const;

  // As SlotClocks::BeginPull; also renews the lease. ABORTED: the incarnation is not live.
  absl::StatusOr<PullClock> BeginPull(SlotId slot, Incarnation incarnation, Step claimed,
                                      bool ahead);

  // Raises the slot's clock to `step` after a settled push. Returns the clock, or nullopt if
  // another incarnation holds the slot.
  std::optional<Step> Advance(SlotId slot, Incarnation incarnation, Step step);

  // Completed rounds in SYNC, otherwise the min clock over live slots.
  int64_t min_clock() const;
  int live_slots() const;

  // Returns the slot that the other slots wait for, if any. This is the slot with the longest
  // silence among the live slots with the lowest clock. If the job uses WHOLE_BATCH, it is the slot
  // with the longest silence among those without a gradient that waits for an update. Ignores slots
  // without a process. REQUIRES: `activity` knows each slot that has entered.
  struct Behind {
    SlotId slot = 0;
    absl::Duration silence;  // since its last pull or push
  };
  std::optional<Behind> FurthestBehind(const SlotActivity& activity) const;

  std::map<SlotId, SlotClocks::Slot> slots() const;

 private:
  // Passes the live slots to the store.
  void Announce() ABSL_LOCKS_EXCLUDED(change_mutex_, mutex_);

  const bool has_rounds_;
  // True if the clocks show which slots are behind.
  const bool by_clock_;
  ParameterStore* const store_;
  const PushPolicy* const policy_;
  PushSegments* const segments_;
  const Clock* const clock_;

  // The live incarnation by slot, 0 for none. Each frame reads it under the block's lock.
  std::array<std::atomic<Incarnation>, kMaxSlots> live_incarnation_{};

  // Held during a change, so that the store receives changes in order.
  Mutex change_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  mutable Mutex mutex_;
  SlotClocks clocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
