#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/completion_queue.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/server/server.h"
#include "torchps/tools/drill/fault_proxy.h"

namespace torchps {
namespace {

constexpr int kPulls = 1000;

// Returns the number of threads per thread name in this process. Leaves out gRPC's executor: it
// grows to one or two threads per core at any time, regardless of parked pulls.
std::map<std::string, int> ThreadsOfThisProcess() {
  std::map<std::string, int> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    ++threads[name];
  }
  threads.erase("default-executo");
  return threads;
}

// Runs any number of Pull calls over one channel and one completion queue. The test's thread polls
// the queue, so the calls do not need threads.
class ManyPulls {
 public:
  explicit ManyPulls(std::shared_ptr<grpc::Channel> channel)
      : stub_(ParameterService::NewStub(std::move(channel))) {}

  ~ManyPulls() {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Begin(const PullRequest& request) {
    calls_.push_back(std::make_unique<Call>());
    Call& call = *calls_.back();
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(5)));
    call.reader = stub_->PrepareAsyncPull(&call.context, request, &queue_);
    call.reader->StartCall(&call);
  }

  // Runs the calls until `condition` holds. Returns false after a minute.
  bool PollUntil(absl::FunctionRef<bool()> condition) {
    return Eventually(
        [&] {
          Poll();
          return condition();
        },
        absl::Minutes(1));
  }

  int ended() const { return ended_; }
  int ended_with(grpc::StatusCode code) const {
    int count = 0;
    for (const auto& call : calls_) count += call->ended && call->status.error_code() == code;
    return count;
  }
  // Number of calls that returned this many frames.
  int brought(int frames) const {
    int count = 0;
    for (const auto& call : calls_) count += call->frames == frames;
    return count;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReader<PullFrame>> reader;
    PullFrame frame;
    grpc::Status status;
    int frames = -1;  // the first event is the start of the call
    bool finishing = false;
    bool ended = false;
  };

  void Poll() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) ==
           grpc::CompletionQueue::GOT_EVENT) {
      Call& call = *static_cast<Call*>(tag);
      if (call.finishing) {
        call.ended = true;
        ++ended_;
      } else if (ok) {
        ++call.frames;
        call.reader->Read(&call.frame, &call);
      } else {
        call.finishing = true;
        call.reader->Finish(&call.status, &call);
      }
    }
  }

  const std::unique_ptr<ParameterService::Stub> stub_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
  int ended_ = 0;
};

// Starts a server in lockstep (staleness bound 0). Slot 0 is at clock 0, so a pull at clock 1 waits
// for slot 0.
class ParkedPullsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Server::Options options;
    options.clock = &clock_;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = PlainChannel(server_->address());
    slowest_ = Enter(0, 1);
    ASSERT_TRUE(slowest_->Initialize(0).ok());
    ASSERT_TRUE(slowest_->Pull(0).ok());
  }

  std::unique_ptr<PlainWorker> Enter(SlotId slot, Incarnation incarnation) {
    JobHarness::Options model;
    model.workers = kPulls;
    model.job = "consistency { staleness_bound: 0 } membership { lease_seconds: 600 }";
    HelloRequest hello = JobHarness::Hello(model);
    hello.set_slot(slot);
    hello.set_incarnation(incarnation);
    auto worker = std::make_unique<PlainWorker>(channel_, hello);
    const absl::Status entered = worker->Hello();
    EXPECT_TRUE(entered.ok()) << entered;
    return worker;
  }

  // Begins a pull at `clock` for each of slots 1 to kPulls, one step ahead of slot 0.
  void ParkAll(ManyPulls& pulls, Step clock) {
    for (SlotId slot = 1; slot <= kPulls; ++slot) {
      // Uses a new incarnation each time, because the first pull of an incarnation may set the
      // clock.
      pulls.Begin(Enter(slot, static_cast<Incarnation>(clock))->RequestPull(clock));
    }
    ASSERT_TRUE(pulls.PollUntil([this] { return ParkedNow() == kPulls; })) << ParkedNow();
  }

  int ParkedNow() {
    const absl::StatusOr<ServerStatus> status = slowest_->Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? static_cast<int>(status->parked_now()) : -1;
  }

  SteadyClock clock_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<PlainWorker> slowest_;
};

TEST_F(ParkedPullsTest, AThousandParkedPullsUseNoThreadsAndAllReturnTheBlocks) {
  const int blocks = static_cast<int>(slowest_->blocks().size());
  // gRPC starts some threads at the first use (for example a second timer thread). So this parks
  // the pulls twice and compares the second time.
  std::map<std::string, int> threads_before;
  for (Step step = 1; step <= 2; ++step) {
    ManyPulls pulls(PlainChannel(server_->address()));
    ParkAll(pulls, step);
    const std::map<std::string, int> threads_while_parked = ThreadsOfThisProcess();
    EXPECT_EQ(pulls.ended(), 0) << "no pull may end while slot 0 is a step behind";
    if (step == 2) {
      EXPECT_EQ(threads_while_parked, threads_before);
      std::printf("%d pulls parked; threads now and before:\n", kPulls);
      for (const auto& [name, count] : threads_while_parked) {
        std::printf("  %-16s %d %d\n", name.c_str(), count, threads_before[name]);
      }
    }
    ASSERT_TRUE(slowest_->Push(step, 1.0f).ok());
    ASSERT_TRUE(pulls.PollUntil([&] { return pulls.ended() == kPulls; })) << pulls.ended();
    EXPECT_EQ(pulls.ended_with(grpc::StatusCode::OK), kPulls);
    EXPECT_EQ(pulls.brought(blocks), kPulls) << "each pull must return each block";
    EXPECT_EQ(ParkedNow(), 0);
    threads_before = ThreadsOfThisProcess();
    ASSERT_TRUE(slowest_->Pull(step).ok());
  }
}

TEST_F(ParkedPullsTest, DropsParkedPullsWhoseConnectionWasReset) {
  FaultProxy::Options options;
  options.target = server_->address();
  auto proxy = FaultProxy::Start(options);
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  ManyPulls pulls(PlainChannel((*proxy)->address()));
  ParkAll(pulls, 1);

  (*proxy)->ResetAll();
  EXPECT_TRUE(Eventually([this] { return ParkedNow() == 0; })) << ParkedNow();
  ASSERT_TRUE(pulls.PollUntil([&] { return pulls.ended() == kPulls; })) << pulls.ended();
  EXPECT_EQ(pulls.ended_with(grpc::StatusCode::UNAVAILABLE), kPulls);

  // The next push finds no parked pulls, and the server continues.
  ASSERT_TRUE(slowest_->Push(1, 1.0f).ok());
  ASSERT_TRUE(slowest_->Pull(1).ok());
  EXPECT_EQ(slowest_->values()[0][0], -1.0f);
}

TEST_F(ParkedPullsTest, AStoppingServerEndsAllParkedPulls) {
  ManyPulls pulls(PlainChannel(server_->address()));
  ParkAll(pulls, 1);
  const absl::Duration before = clock_.Now();
  server_->Stop();
  EXPECT_LT(clock_.Now() - before, absl::Seconds(10));
  ASSERT_TRUE(pulls.PollUntil([&] { return pulls.ended() == kPulls; })) << pulls.ended();
  EXPECT_EQ(pulls.ended_with(grpc::StatusCode::OK), 0);
}

}  // namespace
}  // namespace torchps
