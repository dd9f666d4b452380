#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/server/coordinator/step_time.h"

namespace torchps {

// Decides the batch size of each slot: the samples in each pass (forward and backward) of the next
// step. If training.global_batch is set, the batches of the participating slots add up to
// batch_size. Otherwise they add up to batch_size times the number of these slots. A share is a
// batch before it is rounded to a whole number. If training.balance is SPEED, the shares make all
// steps equally long (LB-BSP: Chen et al. 2020, "Semi-dynamic load balancing"). Otherwise the
// shares are equal.
//
// Each plan contains one share for each participating slot. When a slot that has taken the share
// asks again, the next plan begins. In SYNC, where each slot asks once per round, a plan is one
// round.
//
// StepTime predicts the seconds of a step from the samples, with a standard error. The quotient
// samples / seconds would ignore the fixed cost of a step: a slot with fewer samples would look
// slower and get even fewer. The wanted shares are as equal as possible, but no step may exceed the
// shortest possible step by more than 2 %, or by one standard error if that is larger. Shares move
// only if the predicted time of a slot's step would change by more than 3 % and by several standard
// errors. From one plan to the next, a share changes by a quarter at most, except to satisfy new
// bounds. So machines that cannot be distinguished keep equal shares. Slots without a reliable
// estimate keep the current share.
//
// If a slot misses two plans, or rests, it does not participate until it asks again. The other
// slots share the samples in the meantime.
//
// Not thread-safe; does not read a clock. Invariant: once all `workers` slots have joined, the
// batches of the participating slots add up as described above, unless the sum is less than one
// sample for each.
class BatchBalancer {
 public:
  // `training` is normalised. `workers`, at least 1, is the expected number of slots.
  BatchBalancer(const TrainingSpec& training, int workers);

  // Returns the samples of each pass in the slot's next step, at least 1. The slot participates
  // from now on.
  int BatchFor(SlotId slot);

  // Lets the slot, which may be new, participate from the next plan on. That plan begins with the
  // next BatchFor() for this slot or for a slot that has taken its share.
  void AwaitPlan(SlotId slot) { waiting_.insert(slot); }

  // Returns true if the current plan does not contain a share for the slot, because the slot is
  // new, rests, or waits for the next plan. Until all `workers` slots have joined, plans contain
  // shares for new slots.
  bool IsOutsidePlan(SlotId slot) const;
  // Returns true if the current plan contains a share that the slot has not taken.
  bool HasShare(SlotId slot) const;

  // Returns the predicted seconds of the longest planned pass; 0 if all times are unknown.
  double LongestPass();

  // Records that the slot computed `samples` in `seconds`, in passes of GetLatest() samples. Does
  // nothing if `samples` or `seconds` is 0 or the slot is unknown.
  void Observe(SlotId slot, uint64_t samples, double seconds);

  // Lets the other slots share the slot's samples until its next BatchFor(), because the slot does
  // not compute for now.
  void Rest(SlotId slot);

  // Removes a dead slot. The other slots share its samples.
  void Remove(SlotId slot);

  // Returns the result of the slot's latest BatchFor(); 0 if the slot is unknown.
  int GetLatest(SlotId slot) const;

  // Returns the planned batches by slot, including resting slots. Measured times are not saved,
  // because new measurements replace them quickly.
  std::map<SlotId, int> Save() const;
  // Restores the batches that Save() returned. REQUIRES: all are at least 1, and slots were not
  // added yet.
  void Restore(const std::map<SlotId, int>& batches);

 private:
  struct Slot {
    StepTime time;          // of a pass
    double share = 0;       // planned samples of a pass
    int batch = 0;          // share rounded to a whole number
    int taken = 0;          // by the latest BatchFor()
    bool may_take = false;  // the current plan's batch is not taken yet
    bool resting = false;   // does not participate
    int plans_missed = 0;   // in a row
  };
  struct Candidate;

  // Begins the next plan, including the slots that wait for it.
  void NextPlan();
  // Returns the slot, new or known, and lets it participate from now on.
  Slot& Join(SlotId slot);
  // Computes the first share of a new slot.
  void Admit(Slot* slot);
  // Scales the shares of the other slots so that all shares, including that of the new or returning
  // `slot`, add up to WholeStep().
  void MakeRoomFor(Slot* slot);
  // Moves the shares of the participating slots towards the wanted shares.
  void ShareOut();
  // Returns the participating slots, with the bounds and predicted times of their shares.
  std::vector<Candidate> Candidates();
  // Returns the wanted shares (see the class comment), in the order of `all`.
  std::vector<double> Wanted(const std::vector<Candidate>& all) const;
  // Rounds the shares to whole numbers with the same sum.
  void RoundShares();

  // Returns the participating slots.
  std::vector<Slot*> Present();
  // Returns the share of one slot if all were equally fast. Until all expected slots have joined,
  // the missing ones count as participants.
  double EqualShare() const;
  // Returns the sum of the shares of `slots` participating slots.
  double WholeStep(size_t slots) const { return EqualShare() * static_cast<double>(slots); }

  const bool by_speed_;
  const bool global_;
  const double batch_size_;
  const size_t expected_;
  bool all_came_ = false;
  std::map<SlotId, Slot> slots_;
  std::set<SlotId> waiting_;
  // True while the shares move towards the wanted shares, which may take several plans.
  bool moving_ = false;
};

}  // namespace torchps
