// Tests a worker that stalls although the process lives: the network separates it from one server,
// or its trainer hangs. The other workers continue within the job's time limits, and the stalled
// worker recovers without help.

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/server/server.h"
#include "torchps/tools/drill/fault_proxy.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps {
namespace {

constexpr int kServers = 2;
constexpr int kWorkers = 2;
constexpr int kProcesses = 3;  // a worker may restart
constexpr int64_t kSamples = 64;
// More steps than the other workers may run ahead of a worker that they wait for.
constexpr int64_t kManySteps = 40;

class Rows final : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    return Batch{torch::ones({rows, 4}), torch::zeros({rows, 1})};
  }
};

Objective MeanSquare() {
  return Objective([](const Pass& pass) { return pass.output().square().mean(); });
}

// The parameter is a job text that selects an update rule.
class StalledWorkerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (int i = 0; i < kServers; ++i) {
      Server::Options options;
      options.listen = "127.0.0.1:0";
      options.clock = &clock_;
      options.seed = static_cast<uint64_t>(i) + 1;
      auto server = Server::Start(std::move(options));
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
    for (const auto& server : servers_) {
      FaultProxy::Options proxy;
      proxy.target = server->address();
      auto started = FaultProxy::Start(std::move(proxy));
      ASSERT_TRUE(started.ok()) << started.status();
      ways_.push_back(*std::move(started));
    }
  }

  JobSpec Job(const std::string& more) {
    JobSpec job =
        *ParseJobText(absl::StrCat("workers: 2 optimizer { sgd {} learning_rate: 0.001 } ",
                                   "training { batch_size: 4 epochs: 100000 } ", more),
                      "the job");
    job.mutable_consistency()->MergeFrom(ParseJobText(GetParam(), "the mode")->consistency());
    return *NormalizeJobSpec(job);
  }

  // Starts a process of worker `index`. Worker 1 reaches the servers through proxies.
  void StartWorker(int index, const JobSpec& job) {
    const size_t process = threads_.size();
    auto module = std::make_shared<torch::nn::LinearImpl>(4, 1);
    DataSource source;
    source.train = std::make_shared<Rows>();
    Callbacks callbacks;
    callbacks.on_step = [this, index](const Callbacks::Step& step) {
      steps_[index] = step.step;
      if (index == 1 && step.step == hang_at_) hang_.WaitForNotification();
    };
    WorkerOptions options;
    options.job = job;
    options.slot = index;
    for (int i = 0; i < kServers; ++i) {
      options.servers.push_back(
          ConnectToServer(i, index == 1 ? ways_[i]->address() : servers_[i]->address()));
    }
    options.log = [this, index](const std::string& line) {
      MutexLock lock(&mutex_);
      lines_.push_back(absl::StrCat(index, ": ", line));
    };
    options.clock = &clock_;
    options.stop = &stops_[process];
    threads_.emplace_back(
        [this, process, options, task = Task(module, MeanSquare(), source, callbacks)] {
          at::set_num_threads(1);
          outcomes_[process] = RunWorker(task, options);
        });
  }

  bool Moves(int index) {
    const int64_t from = steps_[index];
    return Eventually([&] { return steps_[index] >= from + kManySteps; });
  }

  SlotAccounting::State ReadState(SlotId slot) {
    JobStatus status;
    grpc::ClientContext context;
    const auto stub = Coordinator::NewStub(ConnectToServer(0, servers_[0]->address()).channel);
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    for (const SlotAccounting& accounting : status.slot()) {
      if (accounting.slot() == slot) return accounting.state();
    }
    return SlotAccounting::STATE_UNSPECIFIED;
  }

  bool WasSaid(const std::string& words) {
    MutexLock lock(&mutex_);
    for (const std::string& line : lines_) {
      if (absl::StrContains(line, words)) return true;
    }
    return false;
  }

  void StopAll() {
    for (StopLatch& stop : stops_) stop.Stop("the test is over");
    for (size_t i = 0; i < threads_.size(); ++i) {
      if (threads_[i].joinable()) threads_[i].join();
      EXPECT_TRUE(absl::IsCancelled(outcomes_[i])) << outcomes_[i];
    }
  }

  const SteadyClock clock_;
  // Each process uses a separate latch, because a worker that loses the slot stops that latch.
  StopLatch stops_[kProcesses];
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<FaultProxy>> ways_;
  std::atomic<int64_t> steps_[kWorkers] = {};
  int64_t hang_at_ = 0;
  absl::Notification hang_;
  absl::Status outcomes_[kProcesses];
  std::vector<std::thread> threads_;
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_P(StalledWorkerTest, OthersContinueWhileAWorkerIsCutOffFromAServerAndItRecovers) {
  const JobSpec job = Job("membership { lease_seconds: 2 }");
  for (int i = 0; i < kWorkers; ++i) StartWorker(i, job);
  ASSERT_TRUE(Moves(0) && Moves(1));
  ways_[1]->SetBlackHole(true);
  EXPECT_TRUE(Moves(0)) << "the other workers wait for it";
  // With whole batches the other workers continue before this worker leaves the clocks.
  if (job.consistency().apply() != ConsistencySpec::WHOLE_BATCH) {
    EXPECT_TRUE(Eventually(
        [&] { return WasSaid("1: slot 1 cannot reach server 1 any more, but other slots can"); }));
  }
  EXPECT_FALSE(WasSaid("0: slot 0 does not reach"));
  ways_[1]->SetBlackHole(false);
  EXPECT_TRUE(Moves(1)) << "it recovers without help";
  EXPECT_TRUE(Moves(0));
  StopAll();
}

TEST_P(StalledWorkerTest, OthersDoNotWaitForANewcomerThatCannotReachAServer) {
  // The lease outlasts the test, so its end does not release the other workers.
  const JobSpec job = Job("membership { lease_seconds: 60 }");
  for (int i = 0; i < kWorkers; ++i) StartWorker(i, job);
  ASSERT_TRUE(Moves(0) && Moves(1));
  stops_[1].Stop("it restarts");
  threads_[1].join();
  ways_[1]->SetBlackHole(true);
  StartWorker(1, job);
  EXPECT_TRUE(Eventually([&] { return WasSaid("1: waiting for server 1"); }));
  EXPECT_TRUE(Moves(0)) << "the other workers wait for it";
  ways_[1]->SetBlackHole(false);
  EXPECT_TRUE(Moves(1));
  EXPECT_TRUE(Moves(0));
  StopAll();
}

TEST_P(StalledWorkerTest, AWorkerCutOffFromTheCoordinatorLosesItsSlotAndOthersContinue) {
  const JobSpec job = Job("membership { lease_seconds: 2 }");
  for (int i = 0; i < kWorkers; ++i) StartWorker(i, job);
  ASSERT_TRUE(Moves(0) && Moves(1));
  ways_[0]->SetBlackHole(true);
  EXPECT_TRUE(Moves(0)) << "the other workers wait for it";
  // With whole batches the other workers may have moved before worker 1's lease ended, so this
  // waits for the end of that lease.
  EXPECT_TRUE(Eventually([&] { return ReadState(1) == SlotAccounting::EXPIRED; }));
  ways_[0]->SetBlackHole(false);
  threads_[1].join();
  EXPECT_TRUE(absl::IsAborted(outcomes_[1]))
      << "another worker received its data: " << outcomes_[1];
  EXPECT_TRUE(Moves(0));
  threads_.pop_back();
  StopAll();
}

TEST_P(StalledWorkerTest, OthersContinueWhileATrainerHangsAndItRecovers) {
  const JobSpec job = Job("membership { lease_seconds: 2 } consistency { progress_timeout: 0.5 }");
  hang_at_ = kManySteps;
  for (int i = 0; i < kWorkers; ++i) StartWorker(i, job);
  ASSERT_TRUE(Eventually([&] { return steps_[1] == hang_at_; }));
  EXPECT_TRUE(Moves(0)) << "the other workers wait for it";
  EXPECT_TRUE(Eventually(
      [&] { return WasSaid("1: the trainer of slot 1 has computed or read data for"); }));
  hang_.Notify();
  EXPECT_TRUE(Moves(1)) << "it recovers without help";
  EXPECT_TRUE(Moves(0));
  StopAll();
}

const char* const kRules[] = {"Sync", "EachPush", "WholeBatch"};

INSTANTIATE_TEST_SUITE_P(
    Rules, StalledWorkerTest,
    ::testing::Values("consistency { mode: SYNC }",
                      "consistency { mode: ASYNC apply: EACH_PUSH staleness_bound: 1 }",
                      "consistency { mode: ASYNC apply: WHOLE_BATCH }"),
    [](const auto& info) { return kRules[info.index]; });

class WholeBatchTest : public StalledWorkerTest {};

TEST_P(WholeBatchTest, AHangingTrainerDoesNotDelayWholeBatches) {
  const JobSpec job = Job("consistency { progress_timeout: 0 }");
  hang_at_ = kManySteps;
  for (int i = 0; i < kWorkers; ++i) StartWorker(i, job);
  ASSERT_TRUE(Eventually([&] { return steps_[1] == hang_at_; }));
  EXPECT_TRUE(Moves(0));
  EXPECT_TRUE(Moves(0));
  EXPECT_EQ(steps_[1], hang_at_);
  hang_.Notify();
  EXPECT_TRUE(Moves(1)) << "its computed push is refused, and it continues";
  StopAll();
}

INSTANTIATE_TEST_SUITE_P(Rules, WholeBatchTest, ::testing::Values("consistency {}"));

}  // namespace
}  // namespace torchps
