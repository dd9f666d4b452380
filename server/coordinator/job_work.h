#pragma once

#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/job_terms.h"
#include "server/coordinator/slots/slot_holder.h"
#include "server/coordinator/work/batch_balancer.h"
#include "server/coordinator/work/data_leases.h"
#include "server/coordinator/work/evaluations.h"

namespace torchps {

// All that a job has to do: its samples, epoch by epoch, and an evaluation of each epoch where the
// job wants one. Hands it out, takes back what a dead slot had in hand, and keeps each epoch's
// books.
//
// Not thread-safe; knows no clock.
class JobWork {
 public:
  // `keeps_models`: the model of an evaluation is kept, and that of the last epoch is handed in
  // also where the job evaluates nothing.
  JobWork(const JobTerms& terms, bool keeps_models);

  // Gives `member` an evaluation or a data lease and says so in `reply`. Returns false if there is
  // nothing for it now. The other slots share the batch of a slot without a lease. In SYNC an
  // evaluator keeps its batch, since the round waits for it.
  bool HandOut(MemberState* member, NextWorkReply* reply);

  // HandOut() has found nothing for the slot, because the present step has no part for it. The slot
  // gets its share of the next step.
  bool AwaitsStep(SlotId slot) const { return awaiting_.count(slot) > 0; }
  // Ends the waits for a step that last longer than the others' steps take, since all other slots
  // may stand still. Returns true if it has ended one: HandOut() has work for that slot now. Call
  // it several times a second.
  bool EndLongWaits(absl::Duration now);

  // The holder hands in its data lease, all samples of which it has used but `lost`; the job had
  // run for `running`. INVALID_ARGUMENT: no such lease was ever handed out, or it has no such part.
  // A repeat changes nothing.
  absl::Status Finish(const NextWorkRequest& handed_in, absl::Duration running);

  // REQUIRES: `result`'s epoch was handed out. Where the evaluations no longer improve, as
  // training.early_stopping says, there is no more work than what was handed out.
  void Report(const EvaluationResult& result);
  // Of a job that this has ended: after how many epochs without a new best. 0: it has not.
  int stopped_after() const { return stopped_after_; }
  bool WasReportedBy(SlotId slot, int epoch) const {
    return evaluations_.WasReportedBy(slot, epoch);
  }

  // The holder is gone: what it had in hand is for others.
  void Release(SlotHolder dead);

  // Every sample is used and every evaluation is reported.
  bool Complete() const { return leases_.Complete() && evaluations_.AllReported(); }

  // The books of all epochs so far, and the evaluations' results.
  void Describe(JobStatus* status) const;

  void SaveTo(CoordinatorState* state) const;
  // Goes on where SaveTo() was called. DATA_LOSS: these are not the books of such terms. REQUIRES:
  // nothing was handed out yet.
  absl::Status Restore(const CoordinatorState& state);
  bool has_evaluation_of(int epoch) const { return evaluations_.has(epoch); }

 private:
  // What the books say about an epoch beyond its samples.
  struct EpochFigures {
    double loss_sum = 0;
    uint64_t loss_samples = 0;
    absl::Duration closed_at;
  };

  // Takes a lease for `member`. Returns false if there is none.
  bool HandOutLease(MemberState* member, bool has_waited, NextWorkReply* reply);
  // Takes an evaluation for `member`, likewise.
  bool HandOutEvaluation(MemberState* member, NextWorkReply* reply);
  // The present step has no part for this slot. Either the slot has come in the middle of the step,
  // or the step ends an epoch and is too short for all slots. Its gradient would be one too many in
  // the update.
  bool HasNoPart(SlotId slot) const;
  // The slot has had no part in the epoch's shorter last step.
  bool MissesLastStep(SlotId slot, int epoch) const;
  // Stops where so many epochs have brought no new best as training.early_stopping says. Returns
  // the epoch whose books this has closed; 0: none.
  int StopWithoutBest();
  // A slot that evaluates `epoch` hands in what the job ends with, as far as is known now.
  bool MayBeLast(int epoch) const;

  const EarlyStoppingSpec stopping_;
  const bool evaluates_;
  const bool keeps_models_;
  const bool evaluators_rest_;
  const TrainingSpec training_;
  const int64_t passes_of_push_;
  const int64_t pushes_of_lease_;
  const int64_t samples_of_step_;  // of all slots together; 0: each makes its own
  struct Wait {
    std::optional<absl::Duration> since;  // first call of EndLongWaits()
    bool is_over = false;
  };
  std::map<SlotId, Wait> awaiting_;
  // By slot, the latest epoch in whose shorter last step it has had a part. Not saved: after a
  // restart a slot waits or pulls once more than it needs to.
  std::map<SlotId, int> last_step_of_;
  BatchBalancer balancer_;
  DataLeases leases_;
  Evaluations evaluations_;              // each opened when its epoch's books close
  std::map<int, EpochFigures> figures_;  // by epoch
  int stopped_after_ = 0;
};

}  // namespace torchps
