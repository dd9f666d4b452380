#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/addresses/server_addresses.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/job_members.h"
#include "server/coordinator/job_phase.h"
#include "server/coordinator/job_terms.h"
#include "server/coordinator/job_work.h"
#include "server/coordinator/slots/slot_holder.h"

namespace torchps {

// The job of a coordinator, from its submission to its end: its terms, its slots, its work, its
// checkpoints and its servers' places, how far it has come, and how long it has run.
//
//   GATHERING --all slots await--> INITIALIZING --initialised--> RUNNING
//     --all books closed, all evaluations reported--> DONE
//
// Answers stand on told_phase() (JobPhase); training goes on meanwhile.
//
// Knows what each slot is to do, but no call: who asks, and who waits for which answer, is the
// matter of JobCoordinator. That one calls Advance() after whatever it has changed here, and
// Changed() for what it has changed in members() and places() itself.
//
// Not thread-safe. Knows no clock: `now` is handed in and must not go back.
class CoordinatedJob {
 public:
  // Of the coordinator that has it.
  struct Options {
    uint64_t coordinator_incarnation = 0;
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
    // job waits for its workers as it did at first. They may bring another number of servers.
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

  // A new one. INVALID_ARGUMENT: these terms make no job.
  static absl::StatusOr<std::unique_ptr<CoordinatedJob>> Begin(Options options, uint64_t id,
                                                               JobTerms terms,
                                                               Incarnation first_incarnation,
                                                               absl::Duration now);
  // Goes on with the job of `state`. DATA_LOSS: such a state cannot have been saved; the message
  // says what is wrong.
  static absl::StatusOr<std::unique_ptr<CoordinatedJob>> Restore(Options options,
                                                                 const CoordinatorState& state,
                                                                 Return how, absl::Duration now);
  // What this one becomes, now that the first worker of a job that was resumed has come: it says
  // how many servers there are, and what else changes. FAILED_PRECONDITION: what may not change, or
  // fewer epochs than have begun; DATA_LOSS. REQUIRES: awaits_terms().
  absl::StatusOr<std::unique_ptr<CoordinatedJob>> ResumeWith(const JobTerms& joiner,
                                                             absl::Duration now) const;

  CoordinatedJob(const CoordinatedJob&) = delete;
  CoordinatedJob& operator=(const CoordinatedJob&) = delete;

  uint64_t id() const { return id_; }
  const JobTerms& terms() const { return terms_; }
  // It was resumed, and no worker has come yet: it is not known how many servers there are.
  bool awaits_terms() const { return terms_.server_count == 0; }
  JobMembers& members() { return members_; }
  JobWork& work() { return work_; }
  ServerAddresses& places() { return places_; }
  uint64_t resumed_checkpoint() const { return resumed_checkpoint_; }
  // It went on from a state that may be older than what workers remember of it.
  bool restored() const { return restored_; }
  // The first incarnation that this object gives out.
  Incarnation own_from() const { return own_from_; }

  // Of these, job_phase.h says more.
  JobStatus::Phase phase() const { return phase_.phase(); }
  JobStatus::Phase told_phase() const { return phase_.told(); }
  absl::Duration RunningTime(absl::Duration now) const { return phase_.RunningTime(now); }
  uint64_t revision() const { return phase_.revision(); }
  uint64_t vital_revision() const { return phase_.vital_revision(); }
  void Changed() { phase_.Changed(); }
  void ChangedVitally() { phase_.ChangedVitally(); }
  // After it, Advance() may have a phase to tell.
  void OnSynced(uint64_t revision) { phase_.OnSynced(revision); }

  // The job wants its state to outlive this process.
  bool durable() const;

  // Goes through the phases as far as they go.
  void Advance(absl::Duration now);

  // What `slot` is told at the start; none: it has to wait.
  std::optional<AwaitStartReply> GetStart(SlotId slot) const;
  // What the slot is to do next, which its books keep; none: there is nothing, but there may yet
  // be.
  std::optional<NextWorkReply> GetNextWork(MemberState& member);

  // Counts the initialisations of the model, from 0: another one is to be made where the values of
  // the last one may be lost.
  uint32_t initialization() const { return initialization_; }
  // The slot says that it has initialised the model, for the present count. False: it was not asked
  // to. REQUIRES: training has not begun.
  bool TakeInitialized(SlotId slot);
  // REQUIRES: `member` evaluates the result's epoch.
  void TakeEvaluation(EvaluationResult result, MemberState& member, absl::Duration now);
  // OK, or ABORTED: the slot's gradients are not finite, and its incarnation has ended, perhaps
  // with the whole job.
  absl::Status CheckFinite(const NextWorkRequest& request, absl::Duration now);
  // Ends the incarnation and gives away what it had in hand. `state` and `reason` go into the
  // books.
  void EndIncarnation(SlotHolder dead, SlotAccounting::State state, const std::string& reason);

  // A user wants a checkpoint that begins after now.
  void RequestCheckpoint() { schedule_.Request(); }
  // The one that is due now, if one is. It is under way until EndCheckpoint().
  std::optional<CheckpointPlan> BeginCheckpoint(absl::Duration now);
  // What became of the one under way; what is to be said of it to those who wait for it.
  absl::StatusOr<CheckpointStatus> EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome,
                                                 absl::Duration now);
  uint64_t newest_finite_checkpoint() const { return schedule_.newest_finite(); }
  // The job runs or has ended, keeps checkpoints, and has done something since the last one.
  bool wants_last_checkpoint() const;

  CoordinatorState Save(absl::Duration now) const;
  JobStatus Describe(absl::Duration now) const;

 private:
  CoordinatedJob(Options options, uint64_t id, JobTerms terms, Incarnation first_incarnation);

  // Takes the books out of `state`. DATA_LOSS.
  absl::Status Load(const CoordinatorState& state, absl::Duration now);
  // DATA_LOSS: what members have in hand is not what the work has handed out.
  absl::Status CheckInHand(const CoordinatorState& state) const;
  // No worker is there any more.
  void WaitForWorkers(absl::Duration now);
  void End(absl::Duration now);
  void ChooseInitializer();
  // The model is where it must be for training to start: where servers come back from checkpoints,
  // in the first one.
  bool ModelIsKept() const;

  const Options options_;
  const uint64_t id_;
  const Incarnation own_from_;
  JobTerms terms_;
  JobMembers members_;
  JobWork work_;
  CheckpointSchedule schedule_;
  JobPhase phase_;
  ServerAddresses places_;
  bool restored_ = false;

  SlotId initializer_ = -1;
  bool initialized_ = false;  // the model has its initial values
  uint32_t initialization_ = 0;
  int first_failures_ = 0;  // of the checkpoint that training waits for
  std::string stopped_;     // why the job ended early; empty: it did not
  uint64_t resumed_checkpoint_ = 0;
};

}  // namespace torchps
