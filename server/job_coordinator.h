#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "server/data_leases.h"
#include "server/holder.h"
#include "server/job_terms.h"
#include "server/replies.h"
#include "server/slot_registry.h"

namespace torchps {

// Runs one job from its submission to its end: who takes part, who initialises the model, who
// trains on which samples, who evaluates, when it is over. The words and the promises of each call
// stand in proto/coordinator.proto; this class is what keeps them.
//
//   NO_JOB --Join--> GATHERING --all slots await--> INITIALIZING --initialised--> RUNNING
//     --all books closed, all evaluations reported--> DONE
//
// A slot is dead when its lease runs out, when it leaves, or when a newer incarnation holds it.
// What a dead slot had in hand (a data lease, an evaluation, the model's initialisation) is given
// to another; nothing waits for the dead.
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
  };

  // Names one parked call. 0: the call was not parked, its answer is ready.
  using ParkedCall = ParkedCallId;

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

  // Buries the slots whose lease has run out. Every other call does so too; this one is for when
  // nobody calls.
  void Tick(absl::Duration now);

  // The caller of a parked call has gone away. Unknown and answered ones are ignored.
  void CancelParked(ParkedCall call);

  // Answers every parked call with `status`: this process is about to end.
  void AbandonParked(const absl::Status& status);

  // The answers that have become due since last asked, in order.
  std::vector<std::function<void()>> TakeReady() { return ready_.Take(); }

 private:
  // One slot as the books know it; what only counts for its present incarnation comes first.
  struct Member {
    Incarnation incarnation = 0;
    bool awaits_start = false;            // has called AwaitStart
    uint64_t call = 0;                    // its latest NextWork call that was taken in
    bool idle = false;                    // ... and said to be parked if need be
    std::optional<NextWorkReply> answer;  // ... and what it was answered
    uint64_t lease = 0;                   // data lease in hand; 0: none
    int evaluating = 0;                   // epoch; 0: none
    ParkingPlace<AwaitStartReply> parked_start;
    ParkingPlace<NextWorkReply> parked_work;

    std::string host;
    std::string device;
    SlotBooks::State state = SlotBooks::STATE_UNSPECIFIED;
    StepFigures figures;
    int epoch = 0;  // of its latest lease
    std::string reason;
  };

  struct Evaluation {
    // Who is to do it or is at it; -1: whoever asks next.
    SlotId slot = -1;
    bool reported = false;
    EvaluationResult result;
  };

  // What the books say about an epoch beyond its samples.
  struct EpochFigures {
    double loss_sum = 0;
    uint64_t loss_samples = 0;
    absl::Duration closed_at;
  };

  // INVALID_ARGUMENT: these terms make no job.
  absl::Status Adopt(JobTerms terms);
  // Buries the dead, then finds the live member that speaks and renews its lease.
  // INVALID_ARGUMENT, ABORTED.
  absl::StatusOr<Member*> Speaker(SlotId slot, Incarnation incarnation, absl::Duration now);
  // Takes a NextWork call into the books, once however often it comes.
  absl::Status TakeIn(const NextWorkRequest& request, Member& member, absl::Duration now);
  // Gives away what a dead slot had in hand. `state` and `reason` go into the books.
  void Bury(Holder dead, SlotBooks::State state, const std::string& reason);
  // Goes through the phases as far as they go and answers every parked call that can be.
  void Settle(absl::Duration now);
  bool Gathered() const;
  void ChooseInitializer();
  // What `slot` is told at the start; none: it has to wait.
  std::optional<AwaitStartReply> FindStart(SlotId slot) const;
  // What `slot` is to do next; none: there is nothing, but there may yet be.
  std::optional<NextWorkReply> FindWork(SlotId slot, Member& member);
  template <typename T>
  void Park(ParkingPlace<T>& place, Reply<T> reply);
  template <typename T>
  void Answer(ParkingPlace<T>& place, absl::StatusOr<T> answer);
  bool Live(SlotId slot) const;
  bool AllEvaluated() const;
  absl::Duration RunningTime(absl::Duration now) const;
  JobStatus Describe(absl::Duration now) const;

  const uint64_t life_;
  const uint64_t job_id_;
  const Incarnation first_incarnation_;

  JobStatus::Phase phase_ = JobStatus::NO_JOB;
  // Set from GATHERING on.
  std::optional<JobTerms> terms_;
  std::unique_ptr<SlotRegistry> registry_;
  std::unique_ptr<DataLeases> leases_;

  std::map<SlotId, Member> members_;
  SlotId initializer_ = -1;
  std::map<int, Evaluation> evaluations_;      // by epoch; from the moment its books closed
  std::map<int, EpochFigures> epoch_figures_;  // by epoch
  absl::Duration started_at_;
  absl::Duration ended_at_;

  ParkedCall last_parked_ = 0;
  std::vector<ParkedReply<JobStatus>> parked_status_;
  ReadyReplies ready_;
};

}  // namespace torchps
