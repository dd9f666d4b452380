#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/types.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/job_members.h"
#include "server/coordinator/job_terms.h"
#include "server/coordinator/job_work.h"
#include "server/coordinator/slot_registry.h"

namespace torchps {

// The coordinator's job, from submission to end. Owns the terms, slots, work, checkpoints and
// server addresses, and tracks the phase and the running time.
//
//   GATHERING --all slots await--> INITIALIZING --initialised--> RUNNING
//     --all epochs closed, all evaluations reported--> DONE
//
// Answers depend on told_phase() (JobPhase); training continues in the meantime.
//
// Decides the work of each slot, but does not handle calls: JobCoordinator does. JobCoordinator
// calls Advance() after each change, and Changed() after it changes members() or places() directly.
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
    // Same as kInPlace, but the state comes from a copy, which may miss incarnations that were
    // assigned later.
    kFromCopy,
    // The workers are gone: all slots are free, and unfinished work is handed out again. The job
    // waits for workers as at the start. They may use a different number of servers.
    kResume,
  };

  // Describes the next checkpoint, which has begun.
  struct CheckpointPlan {
    uint64_t number = 0;
    // The state before any server writes a shard. Samples that are used in it are part of the
    // servers' values.
    CoordinatorState state;
    // Checkpoints to keep once this one is complete, including it. The second list applies if it is
    // not finite.
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
  // begun, and DATA_LOSS as above. REQUIRES: awaits_terms().
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
  // Returns true if the job was restored from a state that may be older than the workers'
  // knowledge.
  bool restored() const { return restored_; }
  // Returns the first incarnation that this object assigns.
  Incarnation own_from() const { return own_from_; }

  // See job_phase.h.
  JobStatus::Phase phase() const { return phase_.phase(); }
  JobStatus::Phase published_phase() const { return phase_.told(); }
  absl::Duration RunningTime(absl::Duration now) const { return phase_.RunningTime(now); }
  uint64_t revision() const { return phase_.revision(); }
  uint64_t vital_revision() const { return phase_.vital_revision(); }
  void Changed() { phase_.Changed(); }
  void ChangedVitally() { phase_.ChangedVitally(); }
  // Advance() may publish a new phase after this call.
  void OnSynced(uint64_t revision) { phase_.OnSynced(revision); }

  // Returns true if the job asks for durability beyond this process.
  bool durable() const;

  // Enters further phases while their conditions hold.
  void Advance(absl::Duration now);

  // Returns the answer for `slot` at the start, or nullopt if the slot must wait.
  std::optional<AwaitStartReply> GetStart(SlotId slot) const;
  // Assigns the slot's next work and records the answer in the slot's accounting. Returns nullopt
  // if the slot must wait for work.
  std::optional<NextWorkReply> GetNextWork(MemberState& member);

  // Counts the initialisations of the model, from 0. The count rises if the values of the last one
  // may be lost.
  uint32_t initialization() const { return initialization_; }
  // The slot reports that it initialised the model for the current count. Returns false if the slot
  // was not asked to. REQUIRES: training has not begun.
  bool TakeInitialized(SlotId slot);
  // Records an evaluation result. REQUIRES: `member` evaluates the result's epoch.
  void TakeEvaluation(EvaluationResult result, MemberState& member, absl::Duration now);
  // Returns ABORTED if the slot's gradients are not finite and the incarnation has ended. The whole
  // job may have ended with it.
  absl::Status CheckFinite(const NextWorkRequest& request, absl::Duration now);
  // Ends the incarnation, hands its work to other slots, and records `state` and `reason`.
  void EndIncarnation(SlotHolder dead, SlotAccounting::State state, const std::string& reason);

  // Requests a checkpoint that begins after this call.
  void RequestCheckpoint() { schedule_.Request(); }
  // Returns the plan of the checkpoint that is due now, if any. It runs until EndCheckpoint().
  std::optional<CheckpointPlan> BeginCheckpoint(absl::Duration now);
  // Records the outcome of the running checkpoint. Returns the answer for the callers that wait for
  // it.
  absl::StatusOr<CheckpointStatus> EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome,
                                                 absl::Duration now);
  uint64_t newest_finite_checkpoint() const { return schedule_.newest_finite(); }
  // Returns true if the job runs or has ended, takes checkpoints, and made progress since the last
  // one.
  bool wants_last_checkpoint() const;

  CoordinatorState Save(absl::Duration now) const;
  JobStatus Describe(absl::Duration now) const;

 private:
  CoordinatedJob(Options options, uint64_t id, JobTerms terms, Incarnation first_incarnation);

  // Restores the members from `state`. Returns DATA_LOSS if they are inconsistent.
  absl::Status Load(const CoordinatorState& state, absl::Duration now);
  // Returns DATA_LOSS if the members' work does not match the work handed out.
  absl::Status CheckInHand(const CoordinatorState& state) const;
  // Frees all slots of a resumed job.
  void WaitForWorkers(absl::Duration now);
  void End(absl::Duration now);
  void ChooseInitializer();
  // Returns true if the model is saved well enough for training to start. If servers restart from
  // checkpoints, the first checkpoint must exist.
  bool ModelIsKept() const;

  const Options options_;
  const uint64_t id_;
  const Incarnation own_from_;
  JobTerms terms_;
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
