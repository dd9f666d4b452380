#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/types.h"
#include "torchps/server/parked/replies.h"

namespace torchps {

// Estimates how long the steps of each slot take at one server: from the answer to a pull to the
// end of the push computed from it.
//
// Not thread-safe: the owner locks. Time is always the caller's `now`.
class StepTimes {
 public:
  void PullAnswered(SlotId slot, absl::Duration now) { slots_[slot].pulled = now; }

  // Ignores a push without a pull before it, for example a repeated push.
  void PushEnded(SlotId slot, absl::Duration now) {
    Slot& state = slots_[slot];
    if (state.pulled == absl::InfiniteDuration()) return;
    state.steps[state.measured++ % kSteps] = now - state.pulled;
    state.pulled = absl::InfiniteDuration();
  }

  // Returns the median of the slot's recent steps, so that one pause does not change the estimate.
  // Infinite if no step was measured, for example after a server restart.
  absl::Duration Usual(SlotId slot) const {
    const auto found = slots_.find(slot);
    if (found == slots_.end() || found->second.measured == 0) return absl::InfiniteDuration();
    const Slot& state = found->second;
    std::vector<absl::Duration> steps(state.steps.begin(),
                                      state.steps.begin() + std::min(state.measured, kSteps));
    const auto middle = steps.begin() + steps.size() / 2;
    std::nth_element(steps.begin(), middle, steps.end());
    return *middle;
  }

 private:
  static constexpr size_t kSteps = 5;

  struct Slot {
    // Infinite if the slot did not pull since the last push.
    absl::Duration pulled = absl::InfiniteDuration();
    std::array<absl::Duration, kSteps> steps;  // ring buffer
    size_t measured = 0;
  };

  std::map<SlotId, Slot> slots_;
};

// Records when each slot last pulled or pushed, and for how long the slot's trainer is stalled. The
// server uses this to report the slot that others wait for.
//
// Thread-safe and wait-free, because each frame calls it. Slots are within [0, kMaxSlots). Borrows
// the clock.
class SlotActivity {
 public:
  explicit SlotActivity(const Clock* clock) : clock_(clock) {}

  // Records that the slot entered, pulled or pushed.
  void RecordCall(SlotId slot) {
    heard_ns_[slot].store(absl::ToInt64Nanoseconds(clock_->Now()), std::memory_order_relaxed);
  }
  // Records how long the slot's trainer has been in one piece of work, as the heartbeat reports.
  void Says(SlotId slot, absl::Duration stalled_for) {
    stalled_ns_[slot].store(absl::ToInt64Nanoseconds(stalled_for), std::memory_order_relaxed);
  }

  // REQUIRES: RecordCall() was called for the slot.
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

// Tracks the slots of a job at one parameter server: each slot's incarnation, liveness and clock.
//
// A slot enters by Hello and is live until it leaves or the lease expires. The min clock is the
// lowest clock of the live slots. It never falls: a slot that enters starts at the min clock or
// above.
// Not thread-safe: the owner locks. Time is always the caller's `now`.
class SlotClocks {
 public:
  struct Slot {
    Incarnation incarnation = 0;  // 0: expected, without a process yet
    Incarnation least = 0;        // the lowest that may enter
    bool live = false;
    bool pulled = false;  // since it entered
    Step clock = 0;
    absl::Duration lease_until = absl::ZeroDuration();
  };

  // `lease` is how long a slot stays live after the last call.
  explicit SlotClocks(absl::Duration lease) : lease_(lease) {}

  // Returns OK if this incarnation may take the slot. ABORTED: the server knows a higher
  // incarnation, from this run or from Expect(). INVALID_ARGUMENT: the slot is outside [0,
  // kMaxSlots), or the incarnation is 0.
  absl::Status CheckEntry(SlotId slot, Incarnation incarnation) const;

  // Makes the slot live and returns the slot's clock. An incarnation that is live or expected keeps
  // its clock; any other starts at max(min clock, own_step). `own_step` is the highest step that
  // this incarnation pushed to all blocks. Steps that earlier incarnations pushed are ignored.
  // After a server restart, these steps can be ahead at one server and behind at another, and two
  // slots would then wait for each other forever.
  // REQUIRES: CheckEntry() returned OK.
  Step Enter(SlotId slot, Incarnation incarnation, Step own_step, absl::Duration now);

  // Restores a slot that `incarnation` held at `clock` before this server restarted. The slot is
  // live without a process until the lease expires, so that the first slots to return do not run
  // ahead alone. If `incarnation` enters by then, it keeps the clock. A lower incarnation may not
  // enter any more.
  // REQUIRES: no slot has entered yet.
  void Expect(SlotId slot, Step clock, Incarnation incarnation, absl::Duration now);

  // Renews the lease if this incarnation is live. ABORTED: it is not live; the worker must send
  // Hello again.
  absl::Status Renew(SlotId slot, Incarnation incarnation, absl::Duration now);

  // Returns the clock that the gate uses for a pull of this live slot: the higher of the recorded
  // and the claimed clock. The first pull after Enter() also records the claim, because a worker
  // starts at the highest clock that any server returned, which may be higher than the clock
  // here. Later claims are not recorded: a false claim would raise the min clock, and pulls could
  // then pass the staleness bound. If `ahead` is true, the worker has not pushed step `claimed`
  // yet, so the step before is recorded.
  Step BeginPull(SlotId slot, Step claimed, bool ahead = false);

  // Raises the clock of a live slot; ignores a lower value.
  void Advance(SlotId slot, Step clock);

  // Removes the slot from the live slots. Ignored if the slot left or a newer incarnation holds it.
  void Leave(SlotId slot, Incarnation incarnation);

  // Does the same as Leave(), and also refuses this incarnation and earlier ones from now on, even
  // if another incarnation holds the slot by now.
  void End(SlotId slot, Incarnation incarnation);

  // Drops the slots with leases that expired by `now`, and returns them.
  std::vector<SlotId> Expire(absl::Duration now);

  // Min clock over the live slots, or the last value while no slot is live.
  Step min_clock() const { return min_clock_; }

  // All slots so far. Slots that are not live stay here, so that an earlier incarnation cannot
  // enter. Use live() where the number of slots so far must not cost time.
  const std::map<SlotId, Slot>& slots() const { return slots_; }
  const std::set<SlotId>& live() const { return live_; }

 private:
  void SetLive(SlotId slot, Slot* state, bool live);
  void RaiseMinClock();

  const absl::Duration lease_;
  std::map<SlotId, Slot> slots_;
  std::set<SlotId> live_;  // those of slots_ that are live
  Step min_clock_ = 0;
};

// Decides which slots may pull, by stale synchronous parallel (Ho et al. 2013). A slot at clock c
// may pull when c - min_clock <= bound. min_clock is the lowest clock of the live slots (EACH_PUSH)
// or the number of completed rounds (SYNC, with bound 0).
//
// A pull that must wait is a stored continuation, so waiting does not hold a thread. Invariant: the
// gate never releases a pull while c - min_clock > bound.
// Not thread-safe: the owner locks, and runs released continuations outside its lock.
class PullGate {
 public:
  static constexpr int64_t kNoBound = -1;

  // `bound` in steps, at least 0, or kNoBound.
  explicit PullGate(int64_t bound) : bound_(bound) {}

  int64_t min_clock() const { return min_clock_.value(); }
  size_t parked() const { return min_clock_.waiting(); }

  bool MayPull(Step clock) const { return bound_ == kNoBound || clock - min_clock() <= bound_; }

  // REQUIRES: !MayPull(clock).
  Watermark::WaiterId Park(Step clock, Watermark::Continuation continuation) {
    return min_clock_.WhenAtLeast(clock - bound_, std::move(continuation));
  }

  bool Cancel(Watermark::WaiterId id) { return min_clock_.Cancel(id); }

  // Raises the min clock and returns the pulls that may run now.
  std::vector<Watermark::Continuation> RaiseMinClock(int64_t min_clock) {
    return min_clock_.RaiseTo(min_clock);
  }

 private:
  const int64_t bound_;
  Watermark min_clock_;
};

}  // namespace torchps
