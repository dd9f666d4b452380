// Tests a job's checkpoints on a real disk, written by the coordinator during the job and at the
// server's stop. A new cluster resumes from them. Also tests a job that loses the coordinator.

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/join_request.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/server/server.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr int64_t kSamples = 40;

// A job that writes checkpoints only on request, unless `durability` overrides this.
JobHarness::Options Model(const std::string& durability = "checkpoint_seconds: 0") {
  JobHarness::Options model;
  model.workers = 1;
  model.job = absl::StrCat("workers: 1 training { epochs: 2 batch_size: 4 lease_batches: 1 } ",
                           "durability { ", durability, " }");
  return model;
}

std::string NewDirectory() {
  std::string name = absl::StrCat(getenv("TEST_TMPDIR"), "/job.XXXXXX");
  return mkdtemp(name.data());
}

// Collects the server's messages. Thread-safe.
class Logged {
 public:
  std::function<void(const std::string& line)> log() {
    return [this](const std::string& line) {
      MutexLock lock(&mutex_);
      lines_.push_back(line);
    };
  }
  // Returns the messages that contain `part`.
  std::vector<std::string> With(const std::string& part) {
    MutexLock lock(&mutex_);
    std::vector<std::string> found;
    for (const std::string& line : lines_) {
      if (absl::StrContains(line, part)) found.push_back(line);
    }
    return found;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

// Starts a server with one thread for calls. A null `files` selects the operating system's files.
// `said` may be null.
std::unique_ptr<Server> StartServer(const Clock* clock, const std::string& dir, bool resume = false,
                                    FileSystem* files = nullptr, Logged* said = nullptr) {
  Server::Options options;
  if (said != nullptr) options.log = said->log();
  options.clock = clock;
  options.dir = dir;
  options.files = files;
  options.threads = 1;
  options.resume = resume;
  options.seed = resume ? 2 : 1;
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::vector<std::string> CheckpointsIn(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "checkpoint-")) names.push_back(name.substr(name.size() - 2));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Plays one worker of a job with one server, on both the data and the control plane, one call at a
// time. Each step pushes 1 to each element. Under plain SGD each value is therefore minus the
// number of steps.
class WholeWorker {
 public:
  WholeWorker(const std::string& address, const JobHarness::Options& model, uint64_t nonce)
      : channel_(PlainChannel(address)),
        coordinator_(Coordinator::NewStub(channel_)),
        hello_(JobHarness::Hello(model)) {
    const absl::StatusOr<JoinReply> joined =
        Call(&Coordinator::Stub::Join, JoinFor(hello_, address, nonce, kSamples));
    status_ = joined.status();
    if (!joined.ok()) return;
    *hello_.mutable_job() = joined->job();
    hello_.set_job_id(joined->job_id());
    hello_.set_resumed_checkpoint(joined->resumed_checkpoint());
    hello_.set_slot(joined->slot());
    hello_.set_incarnation(joined->incarnation());
    data_ = std::make_unique<PlainWorker>(channel_, hello_);
    status_ = data_->Hello();
    step_ = data_->hello_reply().last_step();
  }

  const absl::Status& status() const { return status_; }
  PlainWorker& data() { return *data_; }
  Step step() const { return step_; }

  void Start() {
    AwaitStartRequest request;
    request.set_slot(hello_.slot());
    request.set_incarnation(hello_.incarnation());
    while (true) {
      const auto reply = Call(&Coordinator::Stub::AwaitStart, request);
      ASSERT_TRUE(reply.ok()) << reply.status();
      if (reply->action() == AwaitStartReply::START) return;
      ASSERT_EQ(reply->action(), AwaitStartReply::INITIALIZE);
      ASSERT_TRUE(data_->Initialize(0).ok());
      request.set_initialized(true);
      request.set_initialization(reply->initialization());
    }
  }

  // Works on one lease, which is one step. Returns false if the job is done.
  bool Work(float gradient = 1) {
    while (true) {
      NextWorkRequest request;
      request.set_slot(hello_.slot());
      request.set_incarnation(hello_.incarnation());
      request.set_call(++calls_);
      request.set_finished_lease(std::exchange(lease_, 0));
      request.mutable_figures()->set_pushes(calls_ > 1 ? 1 : 0);
      const auto reply = Call(&Coordinator::Stub::NextWork, request);
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (!reply.ok() || reply->done()) return false;
      if (reply->evaluate_epoch() > 0) {
        ReportEvaluationRequest report;
        report.set_slot(hello_.slot());
        report.set_incarnation(hello_.incarnation());
        report.mutable_result()->set_epoch(reply->evaluate_epoch());
        EXPECT_TRUE(Call(&Coordinator::Stub::ReportEvaluation, report).ok());
        continue;
      }
      lease_ = reply->lease().id();
      EXPECT_TRUE(data_->Pull(step_).ok());
      EXPECT_TRUE(data_->Push(++step_, gradient).ok());
      return true;
    }
  }

  absl::StatusOr<CheckpointStatus> TakeCheckpoint() {
    return Call(&Coordinator::Stub::TakeCheckpoint, TakeCheckpointRequest());
  }
  JobStatus Status() { return *Call(&Coordinator::Stub::GetJobStatus, JobStatusRequest()); }

 private:
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Reply*),
                             const Request& request) {
    absl::StatusOr<Reply> outcome;
    // The coordinator of a resumed job answers UNAVAILABLE until it has read the checkpoint.
    Eventually(
        [&] {
          outcome = CallOnce(method, request);
          return !absl::IsUnavailable(outcome.status());
        },
        absl::Seconds(60));
    return outcome;
  }
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallOnce(grpc::Status (Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&, Reply*),
                                 const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.set_wait_for_ready(true);
    Reply reply;
    const grpc::Status status = (coordinator_.get()->*method)(&context, request, &reply);
    if (!status.ok()) return FromGrpcStatus(status);
    return reply;
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Coordinator::Stub> coordinator_;
  HelloRequest hello_;
  absl::Status status_;
  std::unique_ptr<PlainWorker> data_;
  Step step_ = 0;
  uint64_t calls_ = 0;
  uint64_t lease_ = 0;
};

TEST(CheckpointResumeTest, AJobResumesFromItsLastCheckpoint) {
  const SteadyClock clock;
  const std::string dir = NewDirectory();
  {
    const auto server = StartServer(&clock, dir);
    WholeWorker anna(server->address(), Model(), 1);
    ASSERT_TRUE(anna.status().ok()) << anna.status();
    anna.Start();
    // The worker completes three leases. It holds the fourth lease and pushed that step.
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(anna.Work());
    const absl::StatusOr<CheckpointStatus> taken = anna.TakeCheckpoint();
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->number(), 1u);
    EXPECT_TRUE(std::filesystem::exists(taken->directory() + "/MANIFEST.json"));
    EXPECT_EQ(anna.Status().checkpoint().completed(), 1u);
    // Makes three more steps, which the checkpoint does not contain.
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(anna.Work());
  }

  const auto server = StartServer(&clock, dir, /*resume=*/true);
  WholeWorker bert(server->address(), Model(), 2);
  ASSERT_TRUE(bert.status().ok()) << bert.status();
  EXPECT_EQ(bert.step(), 4) << "the blocks come from the checkpoint";
  bert.Start();
  const JobStatus resumed = bert.Status();
  EXPECT_EQ(resumed.resumed_checkpoint(), 1u);
  EXPECT_EQ(resumed.epoch(0).used(), 12);
  EXPECT_EQ(resumed.epoch(0).outstanding(), 0);
  ASSERT_TRUE(bert.data().ReadOnlyPull().ok());
  EXPECT_EQ(bert.data().values()[0][0], -4);
  while (bert.Work()) {
  }
  const JobStatus done = bert.Status();
  EXPECT_EQ(done.phase(), JobStatus::DONE);
  for (const EpochAccounting& accounting : done.epoch()) {
    EXPECT_EQ(accounting.used(), kSamples);
    EXPECT_EQ(accounting.reissued(), accounting.epoch() == 1 ? 4 : 0)
        << "the lease that the worker held";
  }
  // The samples of the fourth of 20 leases were pushed twice: the checkpoint contained the push,
  // but not the completed lease.
  ASSERT_TRUE(bert.data().ReadOnlyPull().ok());
  EXPECT_EQ(bert.data().values()[0][0], -21);
}

// Blocks each read of a shard until GoOn().
class ReadingStop {
 public:
  explicit ReadingStop(FaultyFileSystem* files) {
    files->SetFaultHook([this](FaultyFileSystem::Operation operation,
                               const std::string& path) -> std::optional<FaultyFileSystem::Fault> {
      if (operation == FaultyFileSystem::Operation::kRead &&
          absl::StrContains(path, "safetensors")) {
        MutexLock lock(&mutex_);
        has_stopped_ = true;
        while (!go_on_) changed_.Wait(&mutex_);
      }
      return std::nullopt;
    });
  }
  bool has_stopped() {
    MutexLock lock(&mutex_);
    return has_stopped_;
  }
  void GoOn() {
    MutexLock lock(&mutex_);
    go_on_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool has_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool go_on_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(CheckpointResumeTest, TheCoordinatorAnswersUnavailableWhileItReadsACheckpoint) {
  const SteadyClock clock;
  FaultyFileSystem files;
  {
    const auto server = StartServer(&clock, "/job", /*resume=*/false, &files);
    WholeWorker anna(server->address(), Model(), 1);
    ASSERT_TRUE(anna.status().ok()) << anna.status();
    anna.Start();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(anna.Work());
    ASSERT_TRUE(anna.TakeCheckpoint().ok());
  }
  files.KillProcesses();
  ReadingStop reading(&files);
  const auto server = StartServer(&clock, "/job", /*resume=*/true, &files);
  const auto channel = PlainChannel(server->address());
  const auto ask = [&](const auto& call) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    context.set_wait_for_ready(true);
    return FromGrpcStatus(call(&context));
  };
  const auto coordinator = Coordinator::NewStub(channel);
  const auto parameters = ParameterService::NewStub(channel);
  absl::Status joined;
  EXPECT_TRUE(Eventually([&] {
    joined = ask([&](grpc::ClientContext* context) {
      JoinReply reply;
      return coordinator->Join(context, JoinFor(JobHarness::Hello(Model()), "", 2, kSamples),
                               &reply);
    });
    return reading.has_stopped();
  }));
  EXPECT_TRUE(absl::IsUnavailable(joined)) << joined;
  const absl::Status status = ask([&](grpc::ClientContext* context) {
    JobStatus reply;
    return coordinator->GetJobStatus(context, JobStatusRequest(), &reply);
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "reads checkpoint 1")) << status;
  EXPECT_EQ(ask([&](grpc::ClientContext* context) {
              ServerStatus reply;
              return parameters->GetServerStatus(context, ServerStatusRequest(), &reply);
            }),
            absl::OkStatus())
      << "the server answers other calls";
  reading.GoOn();
  WholeWorker bert(server->address(), Model(), 2);
  ASSERT_TRUE(bert.status().ok()) << bert.status();
  EXPECT_EQ(bert.Status().resumed_checkpoint(), 1u);
  EXPECT_EQ(bert.step(), 4);
}

TEST(CheckpointResumeTest, WritesTheFirstAndLastCheckpointAndDeletesOldOnes) {
  const SteadyClock clock;
  const std::string dir = NewDirectory();
  auto server = StartServer(&clock, dir);
  WholeWorker anna(server->address(), Model("checkpoint_steps: 3 keep: 2"), 1);
  ASSERT_TRUE(anna.status().ok()) << anna.status();
  anna.Start();
  ASSERT_TRUE(Eventually([&] { return anna.Status().checkpoint().completed() == 1; }));
  for (uint64_t expected = 2; expected <= 4; ++expected) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(anna.Work());
    ASSERT_TRUE(Eventually([&] { return anna.Status().checkpoint().completed() >= expected; }));
  }
  while (anna.Work()) {
  }
  EXPECT_TRUE(server->TakeLastCheckpoint(absl::Seconds(60)).ok());
  const CheckpointStatus last = anna.Status().checkpoint();
  EXPECT_EQ(last.failed(), 0u) << last.last_error();
  EXPECT_EQ(CheckpointsIn(dir).size(), 2u);

  // The last checkpoint holds the end of the job.
  server = nullptr;
  const auto again = StartServer(&clock, dir);
  WholeWorker bert(again->address(), Model("checkpoint_steps: 3 keep: 2"), 2);
  ASSERT_TRUE(bert.status().ok()) << bert.status();
  ASSERT_TRUE(bert.data().ReadOnlyPull().ok());
  EXPECT_EQ(bert.data().values()[0][0], -20);
  EXPECT_EQ(bert.Status().phase(), JobStatus::DONE);
}

TEST(CheckpointResumeTest, KeepsTheLastFiniteCheckpoint) {
  const SteadyClock clock;
  const std::string dir = NewDirectory();
  const JobHarness::Options model = Model("checkpoint_seconds: 0 keep: 2");
  {
    Logged said;
    const auto server = StartServer(&clock, dir, /*resume=*/false, /*files=*/nullptr, &said);
    WholeWorker anna(server->address(), model, 1);
    ASSERT_TRUE(anna.status().ok()) << anna.status();
    anna.Start();
    ASSERT_TRUE(anna.Work());
    const absl::StatusOr<CheckpointStatus> good = anna.TakeCheckpoint();
    ASSERT_TRUE(good.ok()) << good.status();
    EXPECT_EQ(good->nonfinite_blocks(), 0u);
    // Each gradient is finite, but their sum, which the values hold, is not.
    ASSERT_TRUE(anna.Work(3e38f));
    ASSERT_TRUE(anna.Work(3e38f));
    for (int i = 0; i < 4; ++i) {
      const absl::StatusOr<CheckpointStatus> taken = anna.TakeCheckpoint();
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ(taken->nonfinite_blocks(), 2u);
    }
    EXPECT_EQ(CheckpointsIn(dir), (std::vector<std::string>{"01", "04", "05"}));
    const std::vector<std::string> told = said.With("is not finite");
    ASSERT_EQ(told.size(), 1u) << "once, not for each checkpoint";
    EXPECT_EQ(told[0],
              "checkpoint 2 is not finite: 2 of its blocks hold numbers that are infinite or NaN; "
              "checkpoint 1 is kept: to return to it, stop the job, move the later ones away, and "
              "start it with --resume");
  }
  {
    Logged said;
    const auto server = StartServer(&clock, dir, /*resume=*/true, /*files=*/nullptr, &said);
    WholeWorker bert(server->address(), model, 2);
    ASSERT_TRUE(bert.status().ok()) << bert.status();
    EXPECT_EQ(bert.Status().resumed_checkpoint(), 5u)
        << "the newest checkpoint, although it is not finite";
    EXPECT_EQ(bert.Status().checkpoint().nonfinite_blocks(), 2u);
    EXPECT_EQ(bert.data().Status()->nonfinite_blocks(), 2u);
    const std::vector<std::string> told = said.With("checkpoint 5 is not finite: 2 of its blocks");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(absl::StrContains(told[0], "checkpoint 1 is kept")) << told[0];
    bert.Start();
    ASSERT_TRUE(bert.TakeCheckpoint().ok());
    EXPECT_EQ(CheckpointsIn(dir), (std::vector<std::string>{"01", "05", "06"}));
  }
  // Follows the message's advice and removes the later checkpoints.
  std::filesystem::remove_all(dir + "/checkpoint-000000000005");
  std::filesystem::remove_all(dir + "/checkpoint-000000000006");
  Logged said;
  const auto server = StartServer(&clock, dir, /*resume=*/true, /*files=*/nullptr, &said);
  WholeWorker carl(server->address(), model, 3);
  ASSERT_TRUE(carl.status().ok()) << carl.status();
  EXPECT_EQ(carl.Status().resumed_checkpoint(), 1u);
  EXPECT_EQ(carl.data().Status()->nonfinite_blocks(), 0u);
  EXPECT_TRUE(said.With("is not finite").empty());
  ASSERT_TRUE(carl.data().ReadOnlyPull().ok());
  EXPECT_EQ(carl.data().values()[0][0], -1);
}

TEST(CheckpointResumeTest, AStoppedServerWritesAFinalCheckpoint) {
  const SteadyClock clock;
  const std::string dir = NewDirectory();
  {
    const auto server = StartServer(&clock, dir);
    WholeWorker anna(server->address(), Model(), 1);
    ASSERT_TRUE(anna.status().ok()) << anna.status();
    anna.Start();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(anna.Work());
    EXPECT_TRUE(server->TakeLastCheckpoint(absl::Seconds(60)).ok());
  }
  const auto server = StartServer(&clock, dir, /*resume=*/true);
  WholeWorker bert(server->address(), Model(), 2);
  ASSERT_TRUE(bert.status().ok()) << bert.status();
  EXPECT_EQ(bert.step(), 5);
}

TEST(CoordinatorLossTest, PushesAndPullsContinueWithoutTheCoordinator) {
  const SteadyClock clock;
  auto coordinator = StartServer(&clock, "");
  const auto other = StartServer(&clock, "");
  WholeWorker anna(coordinator->address(), Model(), 1);
  ASSERT_TRUE(anna.status().ok());
  anna.Start();
  // A worker of the same job at a second server. It makes no calls to the coordinator.
  PlainWorker elsewhere(PlainChannel(other->address()), anna.data().hello());
  ASSERT_TRUE(elsewhere.Hello().ok());
  ASSERT_TRUE(elsewhere.Initialize(0).ok());
  coordinator = nullptr;
  for (Step step = 1; step <= 20; ++step) {
    ASSERT_TRUE(elsewhere.Pull(step - 1).ok());
    ASSERT_TRUE(elsewhere.Push(step, 1).ok());
  }
  EXPECT_EQ(elsewhere.Status()->max_version(), 20);
}

}  // namespace
}  // namespace torchps
