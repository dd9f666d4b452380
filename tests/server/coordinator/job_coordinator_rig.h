#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/join_request.h"
#include "torchps/common/types.h"
#include "torchps/server/coordinator/job_coordinator.h"

namespace torchps {

// Holds an answer that arrives now or later.
template <typename T>
class Later {
 public:
  bool given() const { return answer_->has_value(); }
  const absl::StatusOr<T>& answer() const { return **answer_; }
  Reply<T> reply() const {
    return [answer = answer_](absl::StatusOr<T> given) {
      EXPECT_FALSE(answer->has_value()) << "answered twice";
      *answer = std::move(given);
    };
  }

 private:
  std::shared_ptr<std::optional<absl::StatusOr<T>>> answer_ =
      std::make_shared<std::optional<absl::StatusOr<T>>>();
};

// Returns a short form of an answer: "1: 0-16" for a lease (with a star if it was handed out
// before), "evaluate 2", "go idle", "done", "parked", "INITIALIZE", or the status code's name.
inline std::string Words(const NextWorkReply& reply) {
  switch (reply.work_case()) {
    case NextWorkReply::kLease:
      return absl::StrCat(reply.lease().epoch(), ": ", reply.lease().begin(), "-",
                          reply.lease().end(), reply.lease().reissued() ? "*" : "");
    case NextWorkReply::kEvaluateEpoch:
      return absl::StrCat("evaluate ", reply.evaluate_epoch());
    case NextWorkReply::kDone:
      return "done";
    case NextWorkReply::kGoIdle:
      return "go idle";
    default:
      return "nothing";
  }
}
inline std::string Words(const AwaitStartReply& reply) {
  return AwaitStartReply::Action_Name(reply.action());
}
template <typename T>
std::string Words(const Later<T>& later) {
  if (!later.given()) return "parked";
  if (!later.answer().ok()) return absl::StatusCodeToString(later.answer().status().code());
  return Words(*later.answer());
}

// Runs one coordinator with a manual clock and worker processes that follow
// torchps/proto/coordinator.proto.
class JobCoordinatorRig {
 public:
  struct Worker {
    uint64_t nonce = 0;
    SlotId slot = -1;
    Incarnation incarnation = 0;
    uint64_t calls = 0;
    uint64_t lease = 0;  // the lease in hand, or 0
  };

  // Two workers, two epochs of 40 samples, leases of 16.
  static JoinRequest SmallJob() {
    JoinRequest request = SmallJoin();
    request.mutable_job()->mutable_training()->set_epochs(2);
    request.set_nonce(1);
    request.set_server_count(2);
    return request;
  }

  explicit JobCoordinatorRig(JoinRequest terms = SmallJob(), uint64_t seed = 1,
                             bool has_directory = false)
      : terms_(std::move(terms)), seed_(seed), has_directory_(has_directory) {
    StartCoordinator();
  }

  JobCoordinator& coordinator() { return *coordinator_; }

  // Restarts the coordinator process from its serialized state. Parked calls are answered with
  // UNAVAILABLE.
  absl::Status Restart(JobCoordinator::Return how = JobCoordinator::Return::kInPlace) {
    return Restart(coordinator_->has_job() ? coordinator_->Save(now_) : CoordinatorState(), how);
  }
  absl::Status Restart(const CoordinatorState& saved, JobCoordinator::Return how) {
    const std::string bytes = saved.SerializeAsString();
    coordinator_->AbandonParked(absl::UnavailableError("the coordinator died"));
    Deliver();
    ++seed_;
    StartCoordinator();
    CoordinatorState state;
    EXPECT_TRUE(state.ParseFromString(bytes));
    if (state.job_id() == 0) return absl::OkStatus();
    const absl::Status restored = coordinator_->Restore(state, how, now_);
    Deliver();
    return restored;
  }
  absl::Duration now() const { return now_; }

  // Advances the clock and ticks the coordinator.
  void Pass(absl::Duration time) {
    now_ += time;
    coordinator_->Tick(now_);
    Deliver();
  }

  absl::StatusOr<JoinReply> Join(const JoinRequest& request) {
    absl::StatusOr<JoinReply> reply = coordinator_->Join(request, now_);
    Deliver();
    return reply;
  }

  Worker NewWorker(SlotId wanted = -1) {
    Worker worker;
    worker.nonce = next_nonce_++;
    JoinRequest request = terms_;
    request.set_nonce(worker.nonce);
    request.set_wanted_slot(wanted);
    const absl::StatusOr<JoinReply> reply = Join(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (reply.ok()) {
      worker.slot = reply->slot();
      worker.incarnation = reply->incarnation();
    }
    return worker;
  }

  // Repeats the number from the reply that asked for initialization, as CoordinatorClient does.
  Later<AwaitStartReply> AwaitStart(const Worker& worker, bool initialized = false) {
    return AwaitStart(worker, initialized, (*initializations_)[worker.slot]);
  }
  Later<AwaitStartReply> AwaitStart(const Worker& worker, bool initialized,
                                    uint32_t initialization) {
    AwaitStartRequest request;
    request.set_slot(worker.slot);
    request.set_incarnation(worker.incarnation);
    request.set_initialized(initialized);
    if (initialized) request.set_initialization(initialization);
    Later<AwaitStartReply> later;
    last_parked_ = coordinator_->AwaitStart(
        request, now_,
        [reply = later.reply(), slot = worker.slot,
         told = initializations_](const absl::StatusOr<AwaitStartReply>& answer) {
          if (answer.ok()) (*told)[slot] = answer->initialization();
          reply(answer);
        });
    Give();
    EXPECT_EQ(last_parked_ == 0, later.given());
    Deliver();
    return later;
  }

  // Returns `count` workers after joining, initialization and start.
  std::vector<Worker> Start(int count) {
    std::vector<Worker> workers;
    for (int i = 0; i < count; ++i) workers.push_back(NewWorker());
    for (const Worker& worker : workers) AwaitStart(worker);
    EXPECT_EQ(Words(AwaitStart(workers[0], /*initialized=*/true)), "START");
    return workers;
  }

  Later<NextWorkReply> Send(const NextWorkRequest& request) {
    Later<NextWorkReply> later;
    last_parked_ = coordinator_->NextWork(request, now_, later.reply());
    Give();
    EXPECT_EQ(last_parked_ == 0, later.given());
    Deliver();
    return later;
  }

  // Returns the worker's next call, which hands in the current lease and asks for more work.
  NextWorkRequest NextRequest(Worker& worker, bool idle = false) {
    NextWorkRequest request;
    request.set_slot(worker.slot);
    request.set_incarnation(worker.incarnation);
    request.set_finished_lease(worker.lease);
    request.set_call(++worker.calls);
    request.set_idle(idle);
    worker.lease = 0;
    return request;
  }

  Later<NextWorkReply> Ask(Worker& worker, bool idle = false) {
    const Later<NextWorkReply> later = Send(NextRequest(worker, idle));
    Hold(worker, later);
    return later;
  }

  // Remembers the lease from the answer.
  static void Hold(Worker& worker, const Later<NextWorkReply>& later) {
    if (later.given() && later.answer().ok()) worker.lease = later.answer()->lease().id();
  }

  absl::Status Report(const Worker& worker, int epoch, double accuracy = 0.5) {
    ReportEvaluationRequest request;
    request.set_slot(worker.slot);
    request.set_incarnation(worker.incarnation);
    request.mutable_result()->set_epoch(epoch);
    request.mutable_result()->set_samples(100);
    MetricValue& metric = *request.mutable_result()->add_metric();
    metric.set_name("accuracy");
    metric.set_value(accuracy);
    const absl::Status status = coordinator_->ReportEvaluation(request, now_).status();
    Deliver();
    return status;
  }

  absl::Status Renew(const Worker& worker) {
    RenewSlotRequest request;
    request.set_slot(worker.slot);
    request.set_incarnation(worker.incarnation);
    const absl::Status status = coordinator_->RenewSlot(request, now_).status();
    Deliver();
    return status;
  }

  absl::Status Leave(const Worker& worker, const std::string& reason = "") {
    LeaveJobRequest request;
    request.set_slot(worker.slot);
    request.set_incarnation(worker.incarnation);
    request.set_reason(reason);
    const absl::Status status = coordinator_->LeaveJob(request, now_).status();
    Deliver();
    return status;
  }

  Later<JobStatus> AskStatus(bool wait_until_done) {
    JobStatusRequest request;
    request.set_wait_until_done(wait_until_done);
    Later<JobStatus> later;
    last_parked_ = coordinator_->GetJobStatus(request, now_, later.reply());
    Deliver();
    return later;
  }

  JobStatus Status() {
    const Later<JobStatus> later = AskStatus(false);
    EXPECT_TRUE(later.given());
    return *later.answer();
  }

  // Returns the id of the last call that the coordinator may have parked.
  JobCoordinator::ParkedCall last_parked() const { return last_parked_; }

  // Makes later writes to the disk fail or succeed.
  void FillDisk(bool full) {
    disk_is_full_ = full;
    Deliver();
  }

  // Delivers the answers that are due, and those that wait for the disk.
  void Deliver() {
    Give();
    if (!has_directory_ || disk_is_full_) return;
    coordinator_->OnSynced(coordinator_->revision(), now_);
    Give();
  }

  Later<CheckpointStatus> TakeCheckpoint() {
    Later<CheckpointStatus> later;
    last_parked_ = coordinator_->TakeCheckpoint(TakeCheckpointRequest(), now_, later.reply());
    Deliver();
    return later;
  }

 private:
  void Give() {
    for (const std::function<void()>& give : coordinator_->TakeReady()) give();
  }

  void StartCoordinator() {
    JobCoordinator::Options options;
    options.seed = seed_;
    options.has_directory = has_directory_;
    coordinator_ = std::make_unique<JobCoordinator>(options);
  }

  const JoinRequest terms_;
  uint64_t seed_;
  const bool has_directory_;
  bool disk_is_full_ = false;
  std::unique_ptr<JobCoordinator> coordinator_;
  // The key is the slot, the value the initialization number of its last answer to AwaitStart().
  const std::shared_ptr<std::map<SlotId, uint32_t>> initializations_ =
      std::make_shared<std::map<SlotId, uint32_t>>();
  absl::Duration now_ = absl::Seconds(1000);
  uint64_t next_nonce_ = 1;
  JobCoordinator::ParkedCall last_parked_ = 0;
};

}  // namespace torchps
