#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/job_members.h"
#include "server/coordinator/job_terms.h"
#include "server/coordinator/job_work.h"
#include "server/coordinator/parked_calls.h"
#include "server/coordinator/places/server_places.h"
#include "server/coordinator/slots/slot_holder.h"
#include "server/waiting/replies.h"

namespace torchps {

// Runs one job from its submission to its end: which slots take part, which one initialises the
// model, trains on which samples, or evaluates, and when the job is over. The words and the
// promises of each call stand in proto/coordinator.proto; this class is what keeps them.
//
//   NO_JOB --Join--> GATHERING --all slots await--> INITIALIZING --initialised--> RUNNING
//     --all books closed, all evaluations reported--> DONE
//
// Of a job that is durable in a directory, a phase is told once it is on the disk for good
// (OnSynced): a coordinator that came back to the phase before would wait for workers that have
// begun, or ended. Until then the calls that ask for it stay parked, and training goes on.
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

  // How Restore() goes on.
  enum class Return {
    // The same workers go on: their slots are live, with whole leases, and what they hold is
    // theirs.
    kInPlace,
    // The same, and the state is a copy, which may lack what the last lives have given out.
    kFromCopy,
    // No worker is there any more: all slots are free and what was in hand is handed out anew. The
    // job
    // waits for its workers as it did at first. They may bring another number of servers.
    kResume,
  };

  // The next checkpoint, begun.
  struct CheckpointPlan {
    uint64_t number = 0;
    // As of the moment before any server writes: what is used in it is in the servers' values.
    CoordinatorState state;
    // The checkpoints that stay once this one is complete, with it; where it is not finite, the
    // second list.
    std::vector<uint64_t> keep;
    std::vector<uint64_t> keep_if_nonfinite;
  };

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
  uint64_t newest_finite_checkpoint() const { return schedule_->newest_finite(); }

  // The job runs or has ended, keeps checkpoints, and has done something since the last one.
  bool wants_last_checkpoint() const;

  // REQUIRES: has_job().
  CoordinatorState Save(absl::Duration now) const;
  // Goes on with the job of `state`. DATA_LOSS, and nothing has changed: such a state cannot have
  // been saved; the message says what is wrong. REQUIRES: !has_job().
  absl::Status Restore(const CoordinatorState& state, Return how, absl::Duration now);

  bool has_job() const { return phase_ != JobStatus::NO_JOB; }
  // The job wants its state to outlive this process.
  bool durable() const;
  // Rises whenever Save() would differ in more than its time. An answer that has become due since
  // then must not be given before that state is stored.
  uint64_t revision() const { return revision_; }
  // The last revision that changed something that must survive a power cut, too: which process
  // holds which slot, the phase, a checkpoint, an evaluation. What else is lost with the power is
  // done again.
  uint64_t vital_revision() const { return vital_revision_; }

  // A state with at least this revision is on the disk for good. To be called after every sync
  // where the state is kept.
  void OnSynced(uint64_t revision, absl::Duration now);

  // `incarnation` is one of those that this object gives out: those that an earlier life may have
  // given out are below. No process may be told it before a state that this object has saved is on
  // the disk for good, or the next life gives it out again. REQUIRES: has_job().
  bool GivesOut(Incarnation incarnation) const { return incarnation >= own_from_; }

  // Ends the slots whose lease has run out. Every other call does so too; this one is for when
  // no call comes.
  void Tick(absl::Duration now);
  // Those that it has ended since last asked.
  std::vector<GoneSlot> TakeGone() { return std::exchange(gone_, {}); }

  // The caller of a parked call has gone away. Unknown and answered ones are ignored.
  void CancelParked(ParkedCall call) { parked_.Cancel(call); }

  // Answers every parked call with `status`: this process is about to end.
  void AbandonParked(const absl::Status& status) { parked_.Abandon(status); }

  // The answers that have become due since last asked, in order.
  std::vector<std::function<void()>> TakeReady() { return parked_.TakeReady(); }

 private:
  // INVALID_ARGUMENT: these terms make no job.
  absl::Status Adopt(JobTerms terms);
  // The first worker of a job that was resumed has come: it says how many servers there are now,
  // and what else changes.
  absl::Status GoOnAs(const JobTerms& joiner, absl::Duration now);
  // The parts that the terms make, all new.
  void Build(JobTerms terms, Incarnation first_incarnation);
  // DATA_LOSS: what members have in hand is not what the work has handed out.
  absl::Status CheckInHand(const CoordinatorState& state) const;
  void FreeAllSlots();
  // Ends the dead, then finds the live member that speaks and renews its lease.
  // INVALID_ARGUMENT, ABORTED.
  absl::StatusOr<MemberState*> Speaker(SlotId slot, Incarnation incarnation, absl::Duration now);
  // Takes a NextWork call into the books, once however often it comes.
  absl::Status TakeIn(const NextWorkRequest& request, MemberState& member, absl::Duration now);
  // OK, or ABORTED: the slot's gradients are not finite, and it was sent away, perhaps with the
  // whole job.
  absl::Status CheckFinite(const NextWorkRequest& request, absl::Duration now);
  void EndJob(absl::Duration now);
  void Enter(JobStatus::Phase phase);
  // From now on others may hear of the phase, if the disk has it or need not have it.
  void TellPhase();
  // The model is where it must be for training to start: where servers come back from checkpoints,
  // in the first one.
  bool ModelIsKept() const;
  // Ends the incarnation and gives away what it had in hand. `state` and `reason` go into the
  // books.
  void Expire(SlotHolder dead, SlotBooks::State state, const std::string& reason);
  // Goes through the phases as far as they go and answers every parked call that can be.
  void Settle(absl::Duration now);
  void ChooseInitializer();
  // What `slot` is told at the start; none: it has to wait.
  std::optional<AwaitStartReply> FindStart(SlotId slot) const;
  // What `slot` is to do next; none: there is nothing, but there may yet be.
  std::optional<NextWorkReply> FindWork(MemberState& member);
  void Changed() { ++revision_; }
  void ChangedVitally() { vital_revision_ = ++revision_; }
  absl::Duration RunningTime(absl::Duration now) const;
  JobStatus Describe(absl::Duration now) const;

  const bool has_directory_;
  const uint64_t boot_id_;
  const Incarnation first_incarnation_;
  uint64_t job_id_;
  Incarnation own_from_ = 0;  // the first that this object gives out
  uint64_t revision_ = 0;
  uint64_t vital_revision_ = 0;
  uint64_t synced_revision_ = 0;

  JobStatus::Phase phase_ = JobStatus::NO_JOB;
  uint64_t phase_revision_ = 0;  // that has it
  // The latest one that others may hear of.
  JobStatus::Phase told_phase_ = JobStatus::NO_JOB;
  // Set from GATHERING on.
  std::optional<JobTerms> terms_;
  std::unique_ptr<JobMembers> members_;
  std::unique_ptr<JobWork> work_;
  std::unique_ptr<CheckpointSchedule> schedule_;
  ServerPlaces places_;
  // The job went on from a state that may be older than what workers remember of it.
  bool restored_ = false;

  SlotId initializer_ = -1;
  bool initialized_ = false;  // the model has its initial values
  int first_failures_ = 0;    // of the checkpoint that training waits for
  std::string stopped_;       // why the job ended early; empty: it did not
  uint64_t resumed_checkpoint_ = 0;
  // How long the job had run when it stopped to wait for its workers.
  absl::Duration ran_before_;
  absl::Duration started_at_;
  absl::Duration ended_at_;

  ParkedCalls parked_;
  std::vector<GoneSlot> gone_;
};

}  // namespace torchps
