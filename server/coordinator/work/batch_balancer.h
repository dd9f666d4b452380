#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/ids.h"
#include "proto/job.pb.h"
#include "server/coordinator/work/step_time.h"

namespace torchps {

// Decides how many samples each slot takes for a step. All slots that take part together have
// batch_size times their number or, with training.global_batch, batch_size. With training.balance
// SPEED the shares are such that all steps take equally long (LB-BSP: Chen et al. 2020,
// "Semi-dynamic load balancing"); otherwise they are equal.
//
// A plan has the shares of all slots. A slot takes its share of a plan once; when it asks again the
// next plan begins. In SYNC, where slots take in turns, a plan is one round.
//
// Measured speed is not samples / seconds: a step has a fixed cost, so the slot with fewer samples
// would look slower and get still fewer. StepTime predicts a step's seconds by its samples, and
// with which error. Of all shares whose slowest step is within 2 %, or one standard error, of the
// shortest possible, a plan has those that are closest to equal. Shares move only where the
// predicted change of a slot's time exceeds 3 % and the error several times, and by a quarter at
// most. So machines that cannot be told apart keep equal shares. A slot whose time is not known
// well keeps its share.
//
// A slot that lets two plans pass, or rests, takes no part until it asks again. The others have its
// samples meanwhile.
//
// Not thread-safe; knows no clock. Invariant: once all `workers` have come, the planned batches of
// the slots that take part add up to the whole step, unless that is below a sample each.
class BatchBalancer {
 public:
  // `training` is normalised; `workers`, at least 1, are expected.
  BatchBalancer(const TrainingSpec& training, int workers);

  // Returns the samples of each pass of `slot` in its next step, at least 1. The slot takes part
  // from now on.
  int BatchFor(SlotId slot);

  // The slot, which may be new, takes part from the next plan on. The next BatchFor() of this slot,
  // or of one that has taken its share, begins that plan.
  void AwaitPlan(SlotId slot) { waiting_.insert(slot); }

  // The present plan has no share for the slot, which is new, rests, or waits for the next plan.
  // Until all `workers` have come, plans have shares for new slots.
  bool IsOutsidePlan(SlotId slot) const;
  // The present plan has a share for the slot, which has not taken it.
  bool HasShare(SlotId slot) const;

  // Predicted seconds of the longest planned pass; 0: no slot's time is known.
  double LongestPass();

  // The slot has computed `samples` in `seconds`, in passes of its latest batch.
  // Ignored where either is 0 or the slot is unknown.
  void Observe(SlotId slot, uint64_t samples, double seconds);

  // The slot computes nothing for now, so the others share its samples until its next BatchFor().
  void Rest(SlotId slot);

  // The slot is gone: the others share its samples.
  void Remove(SlotId slot);

  // Returns the result of the slot's latest BatchFor(), 0 for a slot that is not here.
  int GetLatest(SlotId slot) const;

  // Planned batches by slot, also of those that rest. Times are not kept: they are measured soon
  // enough.
  std::map<SlotId, int> Save() const;
  // Goes on where Save() was called. REQUIRES: all at least 1, and no slot is here yet.
  void Restore(const std::map<SlotId, int>& batches);

 private:
  struct Slot {
    StepTime time;          // of a pass
    double share = 0;       // samples a pass, as planned
    int batch = 0;          // the share as a whole number
    int taken = 0;          // by the latest BatchFor()
    bool may_take = false;  // the present plan's batch is not taken yet
    bool resting = false;   // takes no part
    int plans_missed = 0;   // in a row
  };
  struct Candidate;

  // Begins the next plan, with the slots that wait for it.
  void NextPlan();
  // Returns the slot, new or known, which takes part from now on.
  Slot& Join(SlotId slot);
  // Gives a new slot its first share.
  void Admit(Slot* slot);
  // Lets a new or returning slot have its share; the others share the rest.
  void MakeRoomFor(Slot* slot);
  // Moves the shares of the slots that take part towards the wanted ones.
  void ShareOut();
  // Returns the slots that take part, with the bounds and predicted times of their shares.
  std::vector<Candidate> Candidates();
  // Returns the shares that the class comment describes, in the order of `all`.
  std::vector<double> Wanted(const std::vector<Candidate>& all) const;
  // Makes whole numbers of the shares, with the same sum.
  void RoundShares();

  // Slots that take part.
  std::vector<Slot*> Present();
  // Samples of one slot, were all equally fast. Until all expected slots have come, they count.
  double EqualShare() const;
  double WholeStep(size_t slots) const { return EqualShare() * static_cast<double>(slots); }

  const bool by_speed_;
  const bool global_;
  const double batch_size_;
  const size_t expected_;
  bool all_came_ = false;
  std::map<SlotId, Slot> slots_;
  std::set<SlotId> waiting_;
  // Shares are on their way to what is wanted.
  bool moving_ = false;
};

}  // namespace torchps
