// Runs random schedules in which workers join, crash, repeat calls, pause and return. Every job
// must end: each sample is used exactly once or handed out again, each epoch is evaluated once, and
// no call stays parked.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

using Rig = JobCoordinatorRig;

constexpr int kMaxWorkers = 5;
constexpr int kTurbulentSteps = 300;

// Simulates a worker process that may crash, pause and lose answers.
struct Process {
  enum class Doing { kAwaitingStart, kInitializing, kAsking, kWorking, kEvaluating, kDone };

  Rig::Worker worker;
  Doing doing = Doing::kAwaitingStart;
  int epoch = 0;                 // the epoch being evaluated
  DataLease lease;               // the lease being trained
  NextWorkRequest request;       // the latest call
  Later<AwaitStartReply> start;  // the answer to AwaitStart
  Later<NextWorkReply> work;
  JobCoordinator::ParkedCall parked = 0;  // the parked call, if any
};

class Play {
 public:
  // If `restarts` is true, the coordinator may also crash and restart at any moment.
  Play(uint64_t seed, bool restarts)
      : random_(seed), rig_(Terms(random_), seed), restarts_(restarts) {}

  void Run() {
    for (int step = 0; step < kTurbulentSteps; ++step) {
      RandomEvent();
      CheckAccounting();
      if (testing::Test::HasFailure()) return;
    }
    // From here on the coordinator does not restart, and the processes finish the job.
    const JobStatus status = rig_.Status();
    for (const SlotAccounting& slot : status.slot()) {
      if (slot.state() == SlotAccounting::EXPIRED) ++expired_;
    }
    while (processes_.size() < 2) Enter();
    for (int step = 0; step < 20000 && !AllDone(); ++step) {
      PassTime(absl::Milliseconds(100));
      Act(processes_[UniformBelow(random_, processes_.size())]);
      CheckAccounting();
      if (testing::Test::HasFailure()) return;
    }
    CheckEnd();
  }

  // Numbers of random events, with which the tests check that each kind occurred.
  int64_t reissued() const { return reissued_; }
  int expired() const { return expired_; }
  int restarted() const { return restarted_; }

 private:
  static JoinRequest Terms(uint64_t& random) {
    JoinRequest join = Rig::SmallJob();
    TrainingSpec& training = *join.mutable_job()->mutable_training();
    join.mutable_job()->set_workers(1 + static_cast<int>(UniformBelow(random, 3)));
    training.set_epochs(1 + static_cast<int>(UniformBelow(random, 4)));
    training.set_batch_size(1 + static_cast<int>(UniformBelow(random, 5)));
    training.set_lease_batches(1 + static_cast<int>(UniformBelow(random, 4)));
    if (UniformBelow(random, 3) == 0) training.set_balance(TrainingSpec::SPEED);
    training.set_evaluate(UniformBelow(random, 4) != 0);
    if (UniformBelow(random, 4) == 0) {
      training.set_max_pushes(1 + static_cast<int64_t>(UniformBelow(random, 60)));
    }
    if (UniformBelow(random, 3) == 0) {
      training.clear_lease_batches();
      join.mutable_job()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
    }
    join.set_train_samples(1 + static_cast<int64_t>(UniformBelow(random, 80)));
    return join;
  }

  bool Chance(uint64_t one_in) { return UniformBelow(random_, one_in) == 0; }

  void RandomEvent() {
    if (processes_.empty() || (processes_.size() < kMaxWorkers && Chance(12))) return Enter();
    const size_t index = UniformBelow(random_, processes_.size());
    if (Chance(25)) return Die(index);
    if (Chance(40)) return LeaveEarly(index);
    if (restarts_ && Chance(15)) return RestartCoordinator();
    if (Chance(40)) {
      // All workers are silent for longer than a slot lease, so they lose their slots without
      // noticing.
      rig_.Pass(absl::Seconds(11));
      return;
    }
    PassTime(absl::Milliseconds(static_cast<int64_t>(UniformBelow(random_, 3000))));
    Act(processes_[index]);
  }

  void Enter() {
    Process process;
    process.worker = rig_.NewWorker();
    process.start = rig_.AwaitStart(process.worker);
    process.parked = rig_.last_parked();
    processes_.push_back(process);
  }

  // Restarts the coordinator. The job status must stay the same, except for the coordinator's
  // incarnation.
  void RestartCoordinator() {
    JobStatus before = rig_.Status();
    const absl::Status restarted = rig_.Restart();
    EXPECT_TRUE(restarted.ok()) << restarted;
    JobStatus after = rig_.Status();
    before.clear_coordinator_incarnation();
    after.clear_coordinator_incarnation();
    EXPECT_EQ(before.DebugString(), after.DebugString());
    ++restarted_;
  }

  // Simulates kill -9: the connection breaks, and the slot lives until the lease expires.
  void Die(size_t index) {
    if (Chance(2)) rig_.coordinator().CancelParked(processes_[index].parked);
    processes_.erase(processes_.begin() + static_cast<int64_t>(index));
  }

  void LeaveEarly(size_t index) {
    const absl::Status left = rig_.Leave(processes_[index].worker, "a signal");
    EXPECT_TRUE(left.ok() || absl::IsAborted(left)) << left;
    processes_.erase(processes_.begin() + static_cast<int64_t>(index));
  }

  // Advances the clock. The heartbeats of live processes renew their slot leases.
  void PassTime(absl::Duration time) {
    rig_.Pass(time);
    for (const Process& process : processes_) {
      const absl::Status renewed = rig_.Renew(process.worker);
      EXPECT_TRUE(renewed.ok() || absl::IsAborted(renewed)) << renewed;
    }
  }

  // Runs one step of the process's program.
  void Act(Process& process) {
    switch (process.doing) {
      case Process::Doing::kAwaitingStart:
        return AwaitStart(process);
      case Process::Doing::kInitializing:
        process.start = rig_.AwaitStart(process.worker, /*initialized=*/true);
        process.doing = Process::Doing::kAwaitingStart;
        return;
      case Process::Doing::kAsking:
        return TakeAnswer(process);
      case Process::Doing::kWorking:
        return Ask(process, /*idle=*/false);
      case Process::Doing::kEvaluating: {
        const absl::Status reported = rig_.Report(process.worker, process.epoch);
        if (absl::IsAborted(reported)) return JoinAgain(process);
        EXPECT_TRUE(reported.ok()) << reported;
        if (Chance(3)) {
          EXPECT_TRUE(rig_.Report(process.worker, process.epoch).ok());
        }
        return Ask(process, /*idle=*/false);
      }
      case Process::Doing::kDone:
        return;
    }
  }

  void AwaitStart(Process& process) {
    if (!process.start.given()) {
      if (!Chance(4)) return;
      // The process has waited too long and repeats the call.
      process.start = rig_.AwaitStart(process.worker);
      process.parked = rig_.last_parked();
      return;
    }
    const absl::StatusOr<AwaitStartReply>& answer = process.start.answer();
    if (absl::IsUnavailable(answer.status())) {
      process.start = rig_.AwaitStart(process.worker);
      process.parked = rig_.last_parked();
      return;
    }
    if (!answer.ok()) {
      EXPECT_TRUE(absl::IsAborted(answer.status())) << answer.status();
      return JoinAgain(process);
    }
    if (answer->action() == AwaitStartReply::INITIALIZE) {
      process.doing = Process::Doing::kInitializing;
    } else if (answer->action() == AwaitStartReply::DONE) {
      process.doing = Process::Doing::kDone;
    } else {
      Ask(process, /*idle=*/false);
    }
  }

  void Ask(Process& process, bool idle) {
    process.request = rig_.NextRequest(process.worker, idle);
    const DataLease& lease = process.lease;
    DataLeases::Part lost;
    if (process.request.finished_lease() != 0) {
      const auto size = static_cast<uint64_t>(lease.end() - lease.begin());
      if (Chance(5)) {
        lost.begin = static_cast<int64_t>(UniformBelow(random_, size));
        lost.end = lost.begin + 1 + static_cast<int64_t>(UniformBelow(random_, size - lost.begin));
        LeaseRange& part = *process.request.add_lost();
        part.set_begin(lost.begin);
        part.set_end(lost.end);
      }
      StepFigures& figures = *process.request.mutable_figures();
      figures.set_samples(size - (lost.end - lost.begin));
      figures.set_lost_samples(lost.end - lost.begin);
      figures.set_compute_seconds(static_cast<double>(1 + UniformBelow(random_, 50)) / 10);
    }
    Send(process);
    // The coordinator counts the finished lease when the call arrives, even if the answer comes
    // later.
    const bool counted = !process.work.given() || process.work.answer().ok();
    if (process.request.finished_lease() == 0 || !counted) return;
    lost_ += lost.end - lost.begin;
    for (int64_t position = lease.begin(); position < lease.end(); ++position) {
      const int64_t at = position - lease.begin();
      if (at >= lost.begin && at < lost.end) continue;
      EXPECT_TRUE(used_.insert({lease.epoch(), position}).second)
          << "epoch " << lease.epoch() << " position " << position << " used twice";
    }
  }

  void Send(Process& process) {
    process.work = rig_.Send(process.request);
    process.parked = rig_.last_parked();
    process.doing = Process::Doing::kAsking;
  }

  void TakeAnswer(Process& process) {
    if (Chance(5)) return Send(process);  // the answer was lost, or is late
    if (!process.work.given()) return;
    const absl::StatusOr<NextWorkReply>& answer = process.work.answer();
    if (absl::IsUnavailable(answer.status())) return Send(process);
    if (!answer.ok()) {
      EXPECT_TRUE(absl::IsAborted(answer.status())) << answer.status();
      return JoinAgain(process);
    }
    switch (answer->work_case()) {
      case NextWorkReply::kLease:
        process.lease = answer->lease();
        process.worker.lease = answer->lease().id();
        process.doing = Process::Doing::kWorking;
        return;
      case NextWorkReply::kEvaluateEpoch:
        process.epoch = answer->evaluate_epoch();
        process.doing = Process::Doing::kEvaluating;
        return;
      case NextWorkReply::kGoIdle:
        return Ask(process, /*idle=*/true);
      case NextWorkReply::kDone:
        process.doing = Process::Doing::kDone;
        return;
      default:
        FAIL() << "an empty answer";
    }
  }

  void JoinAgain(Process& process) {
    process = Process();
    process.worker = rig_.NewWorker();
    process.start = rig_.AwaitStart(process.worker);
    process.parked = rig_.last_parked();
  }

  bool AllDone() const {
    for (const Process& process : processes_) {
      if (process.doing != Process::Doing::kDone) return false;
    }
    return true;
  }

  void CheckAccounting() {
    const JobStatus status = rig_.Status();
    int64_t used = 0;
    int64_t lost = 0;
    for (const EpochAccounting& accounting : status.epoch()) {
      used += accounting.used();
      lost += accounting.lost();
      EXPECT_LE(accounting.used() + accounting.outstanding(), accounting.samples());
      if (status.job().training().max_pushes() == 0) {
        EXPECT_EQ(accounting.closed(), accounting.used() == accounting.samples());
      }
    }
    EXPECT_EQ(used, static_cast<int64_t>(used_.size()));
    EXPECT_EQ(lost, lost_);
  }

  void CheckEnd() {
    EXPECT_TRUE(AllDone()) << "a process waits forever";
    const JobStatus status = rig_.Status();
    EXPECT_EQ(status.phase(), JobStatus::DONE);
    const TrainingSpec& training = status.job().training();
    if (training.max_pushes() == 0) {
      EXPECT_EQ(status.epoch_size(), training.epochs());
    }
    std::set<int> evaluated;
    for (const EvaluationResult& result : status.evaluation()) {
      EXPECT_TRUE(evaluated.insert(result.epoch()).second) << "evaluated twice";
    }
    for (const EpochAccounting& accounting : status.epoch()) {
      reissued_ += accounting.reissued();
      EXPECT_TRUE(accounting.closed());
      EXPECT_EQ(accounting.outstanding(), 0);
      EXPECT_EQ(evaluated.count(accounting.epoch()), training.evaluate() ? 1u : 0u);
      if (training.max_pushes() == 0) {
        EXPECT_EQ(accounting.used(), accounting.samples());
      }
    }
  }

  uint64_t random_;
  Rig rig_;
  const bool restarts_;
  int restarted_ = 0;
  std::vector<Process> processes_;
  std::set<std::pair<int, int64_t>> used_;  // (epoch, position)
  int64_t lost_ = 0;                        // lost samples; each loss counts
  int64_t reissued_ = 0;
  int expired_ = 0;
};

TEST(JobCoordinatorPropertyTest, EndsUnderRandomSchedules) {
  int64_t reissued = 0, expired = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Play play(seed, /*restarts=*/false);
    play.Run();
    if (HasFailure()) return;
    reissued += play.reissued();
    expired += play.expired();
  }
  EXPECT_GT(reissued, 1000);
  EXPECT_GT(expired, 100);
}

TEST(JobCoordinatorPropertyTest, EndsUnderRandomSchedulesWithCoordinatorRestarts) {
  int64_t reissued = 0;
  int restarted = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Play play(seed, /*restarts=*/true);
    play.Run();
    if (HasFailure()) return;
    reissued += play.reissued();
    restarted += play.restarted();
  }
  EXPECT_GT(reissued, 300);
  EXPECT_GT(restarted, 1000);
}

}  // namespace
}  // namespace torchps
