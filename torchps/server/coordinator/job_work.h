#pragma once

#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/coordinator/batch_balancer.h"
#include "torchps/server/coordinator/data_leases.h"
#include "torchps/server/coordinator/evaluations.h"
#include "torchps/server/coordinator/job_terms.h"
#include "torchps/server/coordinator/slot_registry.h"

namespace torchps {

// Manages the work of a job: the samples of each epoch, and an evaluation after each epoch if the
// job evaluates. Hands out work, reclaims the work of dead slots, and keeps the accounting of each
// epoch.
//
// Not thread-safe; does not read a clock.
class JobWork {
 public:
  // If `keeps_models` is true, an evaluating slot also uploads the model. The model of the last
  // epoch is uploaded even if the job does not evaluate.
  JobWork(const JobTerms& terms, bool keeps_models);

  // Assigns an evaluation or a data lease to `member` and fills in `reply`. Returns false if there
  // is currently no work for it. A slot without a lease leaves the batch to the other slots. In
  // SYNC a slot that evaluates keeps the batch, because the round waits for the gradient.
  bool HandOut(MemberState* member, NextWorkReply* reply);

  // Returns true if HandOut() returned false because the current step does not include the slot.
  // The slot gets a share of the next step.
  bool AwaitsStep(SlotId slot) const { return awaiting_.count(slot) > 0; }
  // Ends the wait of a slot that has waited longer than the other slots' steps last, because these
  // slots may all have stopped. Returns true if it ended a wait: HandOut() then returns work for
  // that slot. Must be called several times a second.
  bool EndLongWaits(absl::Duration now);

  // Records a finished data lease. `handed_in` names the holder, the lease and the lost ranges. The
  // holder has used all other samples of the lease. `running` is the job's running time. Returns
  // INVALID_ARGUMENT if the lease was never handed out or the lost ranges are outside of it.
  // Repeated calls have no effect.
  absl::Status Finish(const NextWorkRequest& handed_in, absl::Duration running);

  // Records an evaluation result. Ends the job early if training.early_stopping says so. REQUIRES:
  // the epoch's evaluation was handed out.
  void Report(const EvaluationResult& result);
  // Returns the number of epochs without a new best after which the job was stopped early; 0 if it
  // was not.
  int stopped_after() const { return stopped_after_; }
  bool WasReportedBy(SlotId slot, int epoch) const {
    return evaluations_.WasReportedBy(slot, epoch);
  }

  // Reclaims the work of a dead holder for other slots.
  void Release(SlotHolder dead);

  // Returns true if all samples are used and all evaluations are reported.
  bool Complete() const { return leases_.Complete() && evaluations_.AllReported(); }

  // Fills in the accounting of all epochs so far and the evaluation results.
  void Describe(JobStatus* status) const;

  void SaveTo(CoordinatorState* state) const;
  // Restores the state that SaveTo() wrote. Returns DATA_LOSS if it does not match the terms.
  // REQUIRES: work was not handed out yet.
  absl::Status Restore(const CoordinatorState& state);
  bool has_evaluation_of(int epoch) const { return evaluations_.has(epoch); }

 private:
  // Accounting of an epoch beyond the sample counts.
  struct EpochFigures {
    double loss_sum = 0;
    uint64_t loss_samples = 0;
    absl::Duration closed_at;
  };

  // Assigns a lease to `member`. Returns false if all samples are handed out.
  bool HandOutLease(MemberState* member, bool has_waited, NextWorkReply* reply);
  // Assigns an evaluation to `member`. Returns false if none is open.
  bool HandOutEvaluation(MemberState* member, NextWorkReply* reply);
  // Returns true if the current step does not include this slot. Either the slot came in the middle
  // of the step, or the step ends an epoch and is too short for all slots. In both cases a gradient
  // of this slot would be one too many for the update.
  bool HasNoPart(SlotId slot) const;
  // Returns true if the slot was not part of the epoch's shorter last step.
  bool MissesLastStep(SlotId slot, int epoch) const;
  // Stops the job if training.early_stopping requires it. Returns the number of the epoch that this
  // call closed; 0 if it closed no epoch.
  int StopWithoutBest();
  // Returns true if `epoch` may be the last one, so that the evaluating slot uploads the final
  // model.
  bool MayBeLast(int epoch) const;

  const EarlyStoppingSpec stopping_;
  const bool evaluates_;
  const bool keeps_models_;
  const bool evaluators_rest_;
  const TrainingSpec training_;
  const int64_t passes_of_push_;
  const int64_t pushes_of_lease_;
  const int64_t samples_of_step_;  // for all slots together; 0: each slot steps alone
  struct Wait {
    std::optional<absl::Duration> since;  // first call of EndLongWaits()
    bool is_over = false;
  };
  std::map<SlotId, Wait> awaiting_;
  // For each slot, the latest epoch with a shorter last step in which the slot took part. Not
  // saved: after a restart a slot may wait or pull once more than necessary.
  std::map<SlotId, int> last_step_of_;
  BatchBalancer balancer_;
  DataLeases leases_;
  Evaluations evaluations_;              // each is opened when the epoch closes
  std::map<int, EpochFigures> figures_;  // by epoch
  int stopped_after_ = 0;
};

}  // namespace torchps
