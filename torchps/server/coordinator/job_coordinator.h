#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/coordinator/coordinated_job.h"
#include "torchps/server/coordinator/parked_calls.h"
#include "torchps/server/coordinator/slot_registry.h"
#include "torchps/server/parked/replies.h"

namespace torchps {

// Runs one job from submission to end. Decides the participating slots, the slot that initialises
// the model, the work of each slot, and the end of the job. torchps/proto/coordinator.proto
// documents each call. CoordinatedJob tracks the job; this class handles the calls and their
// answers.
//
//   NO_JOB --Join--> a job (CoordinatedJob)
//
// Calls that wait for a phase stay parked until that phase is published (JobPhase in job_terms.h).
// Training continues in the meantime.
//
// Slots die when the lease expires, when the process leaves, or when a newer incarnation holds the
// slot. The work of a dead slot (a data lease, an evaluation, the initialisation of the model) is
// handed to another slot. Other slots do not wait for it.
//
// Save() contains everything that another object needs to continue the job after this process dies:
// all answers stay valid, and every call may be repeated there.
//
// Thread-compatible: the caller locks. Does not use gRPC, threads or a clock: the caller passes
// `now`, which must not decrease. Each call that may be parked receives a Reply. The caller runs
// the answers from TakeReady() outside the lock. CancelParked() drops a parked call whose caller
// disconnected.
class JobCoordinator {
 public:
  struct Options {
    // Seed for the job id, the first incarnation and the coordinator incarnation.
    uint64_t seed = 1;
    // True if there is a directory for checkpoints and the state. Without it, checkpoints are never
    // due.
    bool has_directory = false;
  };

  using Return = CoordinatedJob::Return;
  using CheckpointPlan = CoordinatedJob::CheckpointPlan;

  // Identifies one parked call. 0 means that the call was not parked and the answer is ready.
  using ParkedCall = ParkedCalls::Id;

  explicit JobCoordinator(Options options);
  JobCoordinator(const JobCoordinator&) = delete;
  JobCoordinator& operator=(const JobCoordinator&) = delete;

  // The calls of torchps/proto/coordinator.proto, with the errors documented there. Calls that name
  // a slot renew the slot's lease.
  absl::StatusOr<JoinReply> Join(const JoinRequest& request, absl::Duration now);
  ParkedCall AwaitStart(const AwaitStartRequest& request, absl::Duration now,
                        Reply<AwaitStartReply> reply);
  ParkedCall NextWork(const NextWorkRequest& request, absl::Duration now,
                      Reply<NextWorkReply> reply);
  absl::StatusOr<RenewSlotReply> RenewSlot(const RenewSlotRequest& request, absl::Duration now);
  absl::StatusOr<ReportEvaluationReply> ReportEvaluation(const ReportEvaluationRequest& request,
                                                         absl::Duration now);
  // Returns the score of the evaluation that ReportEvaluation() would record; nullopt if it has
  // none. Returns ALREADY_EXISTS if the report is a repetition, and otherwise the errors of
  // ReportEvaluation().
  absl::StatusOr<std::optional<double>> GetNewScore(const ReportEvaluationRequest& request,
                                                    absl::Duration now);
  // Returns the limits of the file if the slot may upload it now, and otherwise the errors that
  // StoreModel documents. Renews the slot's lease.
  absl::StatusOr<std::shared_ptr<const ModelLimits>> AdmitUpload(const StoreModelRequest& request,
                                                                 absl::Duration now);
  absl::StatusOr<LeaveJobReply> LeaveJob(const LeaveJobRequest& request, absl::Duration now);
  ParkedCall GetJobStatus(const JobStatusRequest& request, absl::Duration now,
                          Reply<JobStatus> reply);

  // Calls that name no slot. Without a job, RegisterServer() returns FAILED_PRECONDITION, and
  // LocateServers() returns an empty list.
  absl::StatusOr<RegisterServerReply> RegisterServer(const RegisterServerRequest& request,
                                                     absl::Duration now);
  absl::StatusOr<LocateServersReply> LocateServers(const LocateServersRequest& request,
                                                   absl::Duration now);

  ParkedCall TakeCheckpoint(const TakeCheckpointRequest& request, absl::Duration now,
                            Reply<CheckpointStatus> reply);

  // Begins the checkpoint that is due now, if any, and returns the plan. It runs until
  // EndCheckpoint().
  std::optional<CheckpointPlan> BeginCheckpoint(absl::Duration now);
  // Records the outcome of the running checkpoint: the size and times, or the error.
  void EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome, absl::Duration now);

  // Returns the newest finite checkpoint that is kept; 0 if no checkpoint is finite. REQUIRES:
  // has_job().
  uint64_t newest_finite_checkpoint() const { return job_->newest_finite_checkpoint(); }

  // Returns true if the job takes checkpoints, has started, and has not completed the checkpoint
  // after the job's end.
  bool wants_last_checkpoint() const { return has_job() && job_->wants_last_checkpoint(); }

  // REQUIRES: has_job().
  CoordinatorState Save(absl::Duration now) const { return job_->Save(now); }
  // Restores the job of `state`. Returns DATA_LOSS, without changing anything, if `state` cannot
  // have been saved; the message describes the problem. REQUIRES: !has_job().
  absl::Status Restore(const CoordinatorState& state, Return how, absl::Duration now);

  bool has_job() const { return job_ != nullptr; }
  // Returns true if there is a job with a durability.level other than NONE.
  bool durable() const { return has_job() && job_->durable(); }
  // Rises with each change of the state that Save() returns, except for changes of the time. An
  // answer that became due at a revision must not be sent before a state of that or a higher
  // revision is stored.
  uint64_t revision() const { return has_job() ? job_->revision() : 0; }
  // Returns the last revision with a change that must survive a power failure: slot holders, the
  // phase, checkpoints or evaluations. The loss of other changes only repeats work.
  uint64_t vital_revision() const { return has_job() ? job_->vital_revision() : 0; }

  // Records that a state with at least this revision is synced. Must be called after every sync if
  // the state is saved.
  void OnSynced(uint64_t revision, absl::Duration now);

  // Returns true if this object assigns `incarnation`; earlier coordinators assigned lower numbers.
  // Such an incarnation must not be sent to a worker before a state of this object is synced.
  // Otherwise a restarted coordinator would assign the same incarnation again. REQUIRES: has_job().
  bool GivesOut(Incarnation incarnation) const { return incarnation >= job_->own_from(); }

  // Evicts the slots with an expired lease, and ends waits that are too long
  // (JobWork::EndLongWaits). Most calls do this too. Tick() is needed while no calls arrive.
  void Tick(absl::Duration now);
  // Returns the slots that Tick() has evicted since the last call.
  std::vector<EvictedSlot> TakeGone() { return std::exchange(gone_, {}); }

  // Returns the slots with an incarnation that has ended since the last call.
  std::vector<SlotId> TakeEnded() { return std::exchange(ended_, {}); }

  // Drops a parked call whose caller disconnected. Ignores unknown and answered calls.
  void CancelParked(ParkedCall call) { parked_.Cancel(call); }

  // Answers every parked call with `status`, because this process is about to end.
  void AbandonParked(const absl::Status& status) { parked_.Abandon(status); }

  // Returns the answers that became due since the last call, in order.
  std::vector<std::function<void()>> TakeReady() { return parked_.TakeReady(); }

 private:
  // Expires dead slots, then returns the live member that called and renews its lease. Returns
  // INVALID_ARGUMENT or ABORTED as in SlotRegistry::Renew.
  absl::StatusOr<MemberState*> FindMember(SlotId slot, Incarnation incarnation, absl::Duration now);
  // Records a NextWork call. A repeated call has no effect.
  absl::Status TakeIn(const NextWorkRequest& request, MemberState& member, absl::Duration now);
  // Ends the incarnation, hands its work to other slots, and records `state` and `reason`.
  void Expire(SlotHolder dead, SlotAccounting::State state, const std::string& reason);
  // Answers the parked calls of an ended incarnation, and records the end for TakeEnded().
  void NotifyEviction(SlotHolder dead);
  // Advances the job as far as possible and answers all parked calls that can be answered.
  // REQUIRES: has_job().
  void Settle(absl::Duration now);
  bool IsToldDone() const { return has_job() && job_->published_phase() == JobStatus::DONE; }
  JobStatus Describe(absl::Duration now) const;

  const CoordinatedJob::Options job_options_;
  // For a job that begins in this process.
  const Incarnation first_incarnation_;
  const uint64_t job_id_;
  std::unique_ptr<CoordinatedJob> job_;  // null before the first Join

  ParkedCalls parked_;
  std::vector<EvictedSlot> gone_;
  std::vector<SlotId> ended_;
};

}  // namespace torchps
