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
#include "common/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/coordinated_job.h"
#include "server/coordinator/parked_calls.h"
#include "server/coordinator/slots/slot_holder.h"
#include "server/parked/replies.h"

namespace torchps {

// Runs one job from its submission to its end: which slots take part, which one initialises the
// model, trains on which samples, or evaluates, and when the job is over. The words and the
// promises of each call stand in proto/coordinator.proto; this class is what keeps them. How far
// the job has come and what is to be done stands in its CoordinatedJob; here are the calls: who
// may speak, and who waits for which answer.
//
//   NO_JOB --Join--> a job (CoordinatedJob)
//
// Until a phase is told, the calls that ask for it stay parked, and training goes on.
//
// A slot is dead when its lease runs out, when it leaves, or when a newer incarnation holds it.
// What a dead slot had in hand (a data lease, an evaluation, the model's initialisation) is given
// to another; nothing waits for the dead.
//
// Save() is all that another object needs to go on with the job in this one's place, after this
// process has died: every answer that was given stays true, and every call may be repeated there.
//
// Thread-compatible: the caller locks. Knows no gRPC, no thread and no clock: `now` is handed in
// and must not go back. A call that is to be parked takes a Reply; the answers that have become
// due, to it or to others, lie in TakeReady() and are given by the caller, outside its lock. A
// parked call is dropped by CancelParked() when its caller has gone away.
class JobCoordinator {
 public:
  struct Options {
    // Draws the job's id, the first incarnation and this coordinator's life.
    uint64_t seed = 1;
    // There is a place to keep checkpoints and this state. Without, none is ever due.
    bool has_directory = false;
  };

  using Return = CoordinatedJob::Return;
  using CheckpointPlan = CoordinatedJob::CheckpointPlan;

  // Names one parked call. 0: the call was not parked, its answer is ready.
  using ParkedCall = ParkedCalls::Id;

  explicit JobCoordinator(Options options);
  JobCoordinator(const JobCoordinator&) = delete;
  JobCoordinator& operator=(const JobCoordinator&) = delete;

  // The calls of proto/coordinator.proto; their errors stand there. Every one that names a slot
  // renews its lease.
  absl::StatusOr<JoinReply> Join(const JoinRequest& request, absl::Duration now);
  ParkedCall AwaitStart(const AwaitStartRequest& request, absl::Duration now,
                        Reply<AwaitStartReply> reply);
  ParkedCall NextWork(const NextWorkRequest& request, absl::Duration now,
                      Reply<NextWorkReply> reply);
  absl::StatusOr<RenewSlotReply> RenewSlot(const RenewSlotRequest& request, absl::Duration now);
  absl::StatusOr<ReportEvaluationReply> ReportEvaluation(const ReportEvaluationRequest& request,
                                                         absl::Duration now);
  absl::StatusOr<LeaveJobReply> LeaveJob(const LeaveJobRequest& request, absl::Duration now);
  ParkedCall GetJobStatus(const JobStatusRequest& request, absl::Duration now,
                          Reply<JobStatus> reply);

  // Whoever speaks here is no slot. FAILED_PRECONDITION, too: there is no job here.
  absl::StatusOr<RegisterServerReply> RegisterServer(const RegisterServerRequest& request,
                                                     absl::Duration now);
  absl::StatusOr<LocateServersReply> LocateServers(const LocateServersRequest& request,
                                                   absl::Duration now);

  ParkedCall TakeCheckpoint(const TakeCheckpointRequest& request, absl::Duration now,
                            Reply<CheckpointStatus> reply);

  // The checkpoint that is due now, if one is. It is under way until EndCheckpoint().
  std::optional<CheckpointPlan> BeginCheckpoint(absl::Duration now);
  // What became of the one under way: its size and times, or why it failed.
  void EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome, absl::Duration now);

  // The newest checkpoint that is kept and finite; 0: none is. REQUIRES: has_job().
  uint64_t newest_finite_checkpoint() const { return job_->newest_finite_checkpoint(); }

  // The job runs or has ended, keeps checkpoints, and has done something since the last one.
  bool wants_last_checkpoint() const { return has_job() && job_->wants_last_checkpoint(); }

  // REQUIRES: has_job().
  CoordinatorState Save(absl::Duration now) const { return job_->Save(now); }
  // Goes on with the job of `state`. DATA_LOSS, and nothing has changed: such a state cannot have
  // been saved; the message says what is wrong. REQUIRES: !has_job().
  absl::Status Restore(const CoordinatorState& state, Return how, absl::Duration now);

  bool has_job() const { return job_ != nullptr; }
  // The job wants its state to outlive this process.
  bool durable() const { return has_job() && job_->durable(); }
  // Rises whenever Save() would differ in more than its time. An answer that has become due since
  // then must not be given before that state is stored.
  uint64_t revision() const { return has_job() ? job_->revision() : 0; }
  // The last revision that changed something that must survive a power cut, too: which process
  // holds which slot, the phase, a checkpoint, an evaluation. What else is lost with the power is
  // done again.
  uint64_t vital_revision() const { return has_job() ? job_->vital_revision() : 0; }

  // A state with at least this revision is on the disk for good. To be called after every sync
  // where the state is kept.
  void OnSynced(uint64_t revision, absl::Duration now);

  // `incarnation` is one of those that this object gives out: those that an earlier life may have
  // given out are below. No process may be told it before a state that this object has saved is on
  // the disk for good, or the next life gives it out again. REQUIRES: has_job().
  bool GivesOut(Incarnation incarnation) const { return incarnation >= job_->own_from(); }

  // Ends the slots whose lease has run out. Every other call does so too; this one is for when
  // no call comes.
  void Tick(absl::Duration now);
  // Those that it has ended since last asked.
  std::vector<EvictedSlot> TakeGone() { return std::exchange(gone_, {}); }

  // The caller of a parked call has gone away. Unknown and answered ones are ignored.
  void CancelParked(ParkedCall call) { parked_.Cancel(call); }

  // Answers every parked call with `status`: this process is about to end.
  void AbandonParked(const absl::Status& status) { parked_.Abandon(status); }

  // The answers that have become due since last asked, in order.
  std::vector<std::function<void()>> TakeReady() { return parked_.TakeReady(); }

 private:
  // Ends the dead, then finds the live member that speaks and renews its lease.
  // INVALID_ARGUMENT, ABORTED.
  absl::StatusOr<MemberState*> Speaker(SlotId slot, Incarnation incarnation, absl::Duration now);
  // Takes a NextWork call into the books, once however often it comes.
  absl::Status TakeIn(const NextWorkRequest& request, MemberState& member, absl::Duration now);
  // Ends the incarnation and gives away what it had in hand. `state` and `reason` go into the
  // books.
  void Expire(SlotHolder dead, SlotAccounting::State state, const std::string& reason);
  // The incarnation has ended, and its parked calls with it.
  void NotifyEviction(SlotHolder dead);
  // Lets the job go on as far as it can, and answers every parked call that can be. REQUIRES:
  // has_job().
  void Settle(absl::Duration now);
  bool IsToldDone() const { return has_job() && job_->told_phase() == JobStatus::DONE; }
  JobStatus Describe(absl::Duration now) const;

  const CoordinatedJob::Options job_options_;
  // Of a job that begins here.
  const Incarnation first_incarnation_;
  const uint64_t job_id_;
  std::unique_ptr<CoordinatedJob> job_;  // null: there is none yet

  ParkedCalls parked_;
  std::vector<EvictedSlot> gone_;
};

}  // namespace torchps
