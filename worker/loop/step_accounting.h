#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/pending_push.h"
#include "client/rollback_accounting.h"
#include "common/element_runs.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// What a slot enters of its steps and hands to the coordinator with each NextWork: where its time
// went, what its pushes came to, which samples they lost, and how many gradients in a row were not
// finite. A page holds what was entered since the last one was begun; the row goes on over pages.
//
// Thread-compatible. Takes times and no clock.
class StepAccounting {
 public:
  // What came of a step.
  struct Outcome {
    int64_t samples = 0;
    double loss_sum = 0;  // over samples
    // The gradient is known to be not finite somewhere and is not to be pushed.
    bool not_finite = false;
    // Neither is it to be pushed where the scale of the loss was too large for it. That is no fault
    // of the slot's, and begins no quarantine.
    bool overflowed = false;
    // Steps for which it was: this one, or local steps.
    int64_t overflows = 0;
    // Local steps whose gradients were not finite; the others were taken.
    int64_t skipped_steps = 0;
    // Trained elements that the step did not reach: they have no gradient, and are left alone.
    ElementRuns absent;
    absl::Duration data_time;     // fetching samples
    absl::Duration compute_time;  // everything else but transfers
  };

  explicit StepAccounting(const TrainingSpec& training);

  // Begins an empty page: time counts from `now` on. To be called before all that follows, and
  // when the page before it has been handed in.
  void BeginPage(absl::Duration now);

  // A pull: so long held back by the staleness bound, and so long until its values were here.
  void EnterPull(absl::Duration waited, absl::Duration pulled);
  // A step that was given up and is begun anew, since its gradient would have come too late.
  void EnterStopped(absl::Duration computed);
  // A step that was computed to its end.
  void EnterStep(const Outcome& step);
  // Its push, that the slot has waited `took` for. The step's samples are at `part` of the lease.
  void EnterPush(const Outcome& step, const LeaseRange& part, const PushResult& push,
                 absl::Duration took);

  // The page's figures at `now`, and what has been rolled back since the page before.
  StepFigures Figures(absl::Duration now, const RollbackAccounting::Lost& rolled_back) const;
  // The page's samples that changed nothing and are to be handed out again: positions in the lease.
  absl::Span<const LeaseRange> lost() const { return lost_; }

  // So many gradients in a row were not finite that the coordinator has to hear of it now.
  bool TooOftenNonfinite() const;
  // Pushes that were acknowledged, on all pages.
  int64_t pushes() const { return pushes_; }

 private:
  // The loss of a step whose samples count as used, pushed or left out. Of one with a block that is
  // not finite it may be anything.
  void AddLoss(const Outcome& step);

  // 0: there may be any number.
  const int64_t max_nonfinite_in_a_row_;
  StepFigures figures_;
  std::vector<LeaseRange> lost_;
  absl::Duration since_;
  int nonfinite_in_a_row_ = 0;
  int64_t pushes_ = 0;
};

}  // namespace torchps
