#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/coordinator/checkpoint_schedule.h"
#include "torchps/server/coordinator/job_members.h"
#include "torchps/server/coordinator/job_terms.h"
#include "torchps/server/coordinator/job_work.h"
#include "torchps/server/coordinator/model_store.h"
#include "torchps/server/coordinator/slot_registry.h"

namespace torchps {

// The coordinator's job, from submission to end. Owns the terms, slots, work, checkpoints and
// server addresses, and tracks the phase and the running time.
//
//   GATHERING --all slots call AwaitStart--> INITIALIZING --model initialised--> RUNNING
//     --all epochs closed, all evaluations reported--> DONE
//
// Answers depend on published_phase(), which may stay behind phase() until the state is synced to
// disk (JobPhase). Training continues in the meantime.
//
// Decides the work of each slot, but does not handle calls: JobCoordinator does. JobCoordinator
// calls Advance() after each change, and Changed() after it changes members() or server_addresses()
// directly.
//
// Not thread-safe. Does not read a clock: the caller passes `now`, which must not decrease.
class CoordinatedJob {
 public:
  // Properties of the coordinator that owns the job.
  struct Options {
    uint64_t coordinator_incarnation = 0;
    // True if there is a directory for checkpoints and the state. Without it, checkpoints are never
    // due.
    bool has_directory = false;
  };

  // States how Restore() continues the job.
  enum class Return {
    // The same workers continue: their slots are live with full leases, and they keep their work.
    kInPlace,
    // Same as kInPlace, but the state comes from a backup copy (torchps/server/backup). The
    // coordinator may have assigned incarnations after that copy was made.
    kFromCopy,
    // The workers are gone: all slots are free, and unfinished work is handed out again. The job
    // waits for workers as at the start. The new workers may use a different number of servers.
    kResume,
  };

  // Describes the next checkpoint, which has begun.
  struct CheckpointPlan {
    uint64_t number = 0;
    // The coordinator's state before any server writes a shard. So the shards contain the gradients
    // of all samples that this state counts as used.
    CoordinatorState state;
    // Checkpoints to keep once this one is complete, including this one. `keep_if_nonfinite`
    // replaces `keep` if this one is not finite.
    std::vector<uint64_t> keep;
    std::vector<uint64_t> keep_if_nonfinite;
  };

  // Creates a new job. Returns INVALID_ARGUMENT if the terms are invalid.
  static absl::StatusOr<std::unique_ptr<CoordinatedJob>> Begin(Options options, uint64_t id,
                                                               JobTerms terms,
                                                               Incarnation first_incarnation,
                                                               absl::Duration now);
  // Restores the job of `state`. Returns DATA_LOSS if `state` cannot have been saved; the message
  // describes the problem.
  static absl::StatusOr<std::unique_ptr<CoordinatedJob>> Restore(Options options,
                                                                 const CoordinatorState& state,
                                                                 Return how, absl::Duration now);
  // Returns the resumed job with the terms of the first worker that joins. Returns
  // FAILED_PRECONDITION if the worker changes a fixed field or asks for fewer epochs than have
  // begun, and DATA_LOSS as Restore() does. REQUIRES: awaits_terms().
  absl::StatusOr<std::unique_ptr<CoordinatedJob>> ResumeWith(const JobTerms& joiner,
                                                             absl::Duration now) const;

  CoordinatedJob(const CoordinatedJob&) = delete;
  CoordinatedJob& operator=(const CoordinatedJob&) = delete;

  uint64_t id() const { return id_; }
  const JobTerms& terms() const { return terms_; }
  // Returns true if the job was resumed and the first worker has not joined yet. The number of
  // servers is unknown until then.
  bool awaits_terms() const { return terms_.server_count == 0; }
  JobMembers& members() { return members_; }
  JobWork& work() { return work_; }
  ServerAddresses& server_addresses() { return server_addresses_; }
  uint64_t resumed_checkpoint() const { return resumed_checkpoint_; }
  // Returns true if Restore() made this object. The workers may have answers that are newer than
  // the restored state.
  bool restored() const { return restored_; }
  // Returns the first incarnation that this object assigns.
  Incarnation own_from() const { return own_from_; }

  // See JobPhase (job_terms.h).
  JobStatus::Phase phase() const { return phase_.phase(); }
  JobStatus::Phase published_phase() const { return phase_.told(); }
  absl::Duration RunningTime(absl::Duration now) const { return phase_.RunningTime(now); }
  uint64_t revision() const { return phase_.revision(); }
  uint64_t vital_revision() const { return phase_.vital_revision(); }
  void Changed() { phase_.Changed(); }
  void ChangedVitally() { phase_.ChangedVitally(); }
  // Records that a state with at least this revision is synced. Advance() may publish a new phase
  // after that.
  void OnSynced(uint64_t revision) { phase_.OnSynced(revision); }

  // Returns true unless the job's durability.level is NONE.
  bool durable() const;

  // Enters further phases while their conditions hold, and publishes the phase if it is synced.
  void Advance(absl::Duration now);

  // Returns the answer to the AwaitStart call of `slot`, or nullopt if the slot must wait.
  std::optional<AwaitStartReply> GetStart(SlotId slot) const;
  // Assigns the slot's next work and records the answer in the slot's accounting. Returns nullopt
  // if the slot must wait for work.
  std::optional<NextWorkReply> GetNextWork(MemberState& member);

  // Returns the number of the current initialisation of the model, from 0. A new one begins if the
  // values of the previous one may be lost.
  uint32_t initialization() const { return initialization_; }
  // Records that the slot has pushed the initial values for initialization(). Returns false if the
  // slot was not asked to. REQUIRES: training has not begun.
  bool TakeInitialized(SlotId slot);
  // Returns OK if the slot was asked to upload this model file and has not reported the outcome
  // yet, and PERMISSION_DENIED otherwise. The answer is the same after a restart, because the saved
  // state contains the slot's instructions.
  absl::Status CheckUpload(const MemberState& member, ModelFile file) const;
  // Returns the limits of the job's model files.
  const std::shared_ptr<const ModelLimits>& model_limits() const { return model_limits_; }
  // Records an evaluation result. REQUIRES: `member` evaluates the result's epoch.
  void TakeEvaluation(EvaluationResult result, MemberState& member, absl::Duration now);
  // Ends the slot's incarnation and returns ABORTED if the figures in `request` report too many
  // nonfinite gradients (training.nonfinite, training.quarantine_after). This may also end the job.
  absl::Status CheckFinite(const NextWorkRequest& request, absl::Duration now);
  // Ends the incarnation, hands its work to other slots, and records `state` and `reason`.
  void EndIncarnation(SlotHolder dead, SlotAccounting::State state, const std::string& reason);

  // Requests a checkpoint that begins after this call.
  void RequestCheckpoint() { schedule_.Request(); }
  // As CheckpointSchedule::Hasten.
  void HastenCheckpoint() { schedule_.Hasten(); }
  // Begins the checkpoint that is due now, if any, and returns the plan. It runs until
  // EndCheckpoint().
  std::optional<CheckpointPlan> BeginCheckpoint(absl::Duration now);
  // Records the outcome of the running checkpoint. Returns the answer for the callers that wait for
  // it.
  absl::StatusOr<CheckpointStatus> EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome,
                                                 absl::Duration now);
  uint64_t newest_finite_checkpoint() const { return schedule_.newest_finite(); }
  // Returns true if the job takes checkpoints, has started, and has not completed the checkpoint
  // after the job's end.
  bool wants_last_checkpoint() const;

  CoordinatorState Save(absl::Duration now) const;
  JobStatus Describe(absl::Duration now) const;

 private:
  CoordinatedJob(Options options, uint64_t id, JobTerms terms, Incarnation first_incarnation);

  // Fills in the fields of this object from `state`. Returns DATA_LOSS if `state` is inconsistent.
  absl::Status Load(const CoordinatorState& state, absl::Duration now);
  // Returns DATA_LOSS if a live slot evaluates an epoch that was never opened for evaluation, or if
  // an outstanding data lease has no live holder.
  absl::Status CheckInHand(const CoordinatorState& state) const;
  // Frees all slots of a resumed job, and returns to GATHERING unless the job is over.
  void WaitForWorkers(absl::Duration now);
  void End(absl::Duration now);
  void ChooseInitializer();
  // Returns true if training may start. If servers restart from checkpoints, the first checkpoint
  // must exist or must have failed several times.
  bool ModelIsKept() const;

  const Options options_;
  const uint64_t id_;
  const Incarnation own_from_;
  JobTerms terms_;
  const std::shared_ptr<const ModelLimits> model_limits_;
  JobMembers members_;
  JobWork work_;
  CheckpointSchedule schedule_;
  JobPhase phase_;
  ServerAddresses server_addresses_;
  bool restored_ = false;

  SlotId initializer_ = -1;
  bool initialized_ = false;  // the model is initialised
  uint32_t initialization_ = 0;
  int first_failures_ = 0;  // of the first checkpoint, which training waits for
  std::string stopped_;     // reason for an early end; may be empty
  uint64_t resumed_checkpoint_ = 0;
};

}  // namespace torchps
