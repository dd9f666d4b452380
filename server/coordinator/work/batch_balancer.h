#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "common/ids.h"
#include "proto/job.pb.h"

namespace torchps {

// How many samples each slot takes for a step. All slots together take batch_size times their
// number or, with training.global_batch, batch_size. With training.balance SPEED each takes as many
// as it computes in the time that the others take for theirs (LB-BSP: Chen et al. 2020,
// "Semi-dynamic load balancing"), else all take the same.
//
// Shares are planned for all slots at once, and a plan holds until each has taken from it what it
// may: in SYNC, where slots take in turns, that is one round, so a round has exactly as many
// samples as without balancing. A slot's speed is the median of its last few, so that a pause is no
// change of speed. A plan stays where it is nearly right, so that machines that are equal keep
// equal batches; otherwise each share moves by a quarter of itself at most.
//
// Not thread-safe; knows no clock.
class BatchBalancer {
 public:
  // `training` is normalised. So many `workers`, at least 1, are expected.
  BatchBalancer(const TrainingSpec& training, int workers);

  // Samples of the next step's passes of `slot`, which takes part from now on. At least 1.
  int BatchFor(SlotId slot);

  // The slot has computed gradients of so many samples in so many seconds. Nothing where either is
  // 0.
  void Observe(SlotId slot, uint64_t samples, double seconds);

  // The slot is gone: the others share its samples.
  void Remove(SlotId slot);

  // Of the slot's latest BatchFor(); 0: it takes no part.
  int LatestOf(SlotId slot) const;

  // By slot, of all that take part. Speeds are not kept: they are measured soon enough.
  std::map<SlotId, int> Save() const;
  // Goes on where Save() was called. REQUIRES: all at least 1, and no slot takes part yet.
  void Restore(const std::map<SlotId, int>& batches);

 private:
  struct Slot {
    std::deque<double> speeds;  // samples a second, the latest ones
    double share = 0;           // samples a step, as planned
    int batch = 0;              // the share as a whole number
    bool may_take = false;      // what is planned for it it has not taken yet
  };

  // Gives a slot that has come its first share.
  void Admit(Slot* slot);
  // Gives each slot its share of the next step.
  void Plan();
  // Shares by which all would take equally long, within the bounds, and each within a quarter of
  // what it is, where `slowly`.
  std::map<SlotId, double> Wanted(bool slowly) const;
  // Makes whole numbers of the shares, with the same sum.
  void RoundShares();

  // Samples of one slot, were all equally fast: until all that are expected have come, among these.
  double EqualShare() const;
  // Samples of all slots that are here.
  double WholeStep() const { return EqualShare() * static_cast<double>(slots_.size()); }

  const bool by_speed_;
  const bool global_;
  const double batch_size_;
  const double floor_;  // of an equal share
  const double ceiling_;
  const size_t expected_;
  bool all_came_ = false;
  std::map<SlotId, Slot> slots_;
  // Shares are on their way to what is wanted.
  bool moving_ = false;
};

}  // namespace torchps
