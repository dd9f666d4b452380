// Tests that a slow server slows the workers down. The server stays within the frame budget, serves
// the workers equally, and calls do not fail.

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/server/server.h"

namespace torchps {
namespace {

constexpr int64_t kBlockElements = 4096;
constexpr int64_t kBlockBytes = kBlockElements * sizeof(float);
constexpr int kBlocks = 4;
// Number of frames for which the server has memory: at most this many received and this many to
// send.
constexpr int kShares = 3;

class BackPressureTest : public ::testing::Test {
 protected:
  void StartServer(double slow) {
    Server::Options options;
    // The clock of a fast server does not advance, so silence timeouts never expire.
    options.clock = slow > 1 ? static_cast<const Clock*>(&clock_) : &still_;
    options.slow = slow;
    // The server reads one stream at a time.
    options.threads = 1;
    options.receive_bytes = kShares * kBlockBytes;
    options.send_bytes = kShares * kBlockBytes;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Returns a worker after Hello. Slot 0 also initializes the model.
  std::unique_ptr<PlainWorker> Enter(SlotId slot) {
    JobHarness::Options options;
    options.trained = kBlocks * kBlockElements;
    options.block_elements = kBlockElements;
    options.workers = 16;
    // The sanitizers make the slow server so slow that a push takes longer than a usual lease.
    options.job = "consistency { staleness_bound: -1 } membership { lease_seconds: 600 }";
    HelloRequest hello = JobHarness::Hello(options);
    hello.set_slot(slot);
    auto worker = std::make_unique<PlainWorker>(PlainChannel(server_->address()), hello);
    EXPECT_TRUE(worker->Hello().ok());
    if (slot == 0) {
      EXPECT_TRUE(worker->Initialize(0).ok());
    }
    return worker;
  }

  ServerStatus Status(PlainWorker& worker) {
    const absl::StatusOr<ServerStatus> status = worker.Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? *status : ServerStatus();
  }

  SteadyClock clock_;
  ManualClock still_;
  std::unique_ptr<Server> server_;
};

// Holds a Push that sent one frame of four and then stalls until destroyed, like a worker stopped
// in the middle of a push.
class StalledPush {
 public:
  explicit StalledPush(PlainWorker& worker) : stream_(worker.stub().Push(&context_, &reply_)) {
    EXPECT_TRUE(stream_->Write(worker.Frame(/*step=*/1, /*block=*/0, 1.0f)));
  }
  ~StalledPush() {
    context_.TryCancel();
    stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  PushReply reply_;
  const std::unique_ptr<grpc::ClientWriter<PushFrame>> stream_;
};

TEST_F(BackPressureTest, SixteenWorkersShareASlowServerEqually) {
#ifdef TORCHPS_TSAN
  GTEST_SKIP() << "the sanitizer slows down the updates that this test measures";
#endif
  // The server is slow enough to be the bottleneck.
  StartServer(/*slow=*/100);
  constexpr int kWorkers = 16;
  constexpr Step kSteps = 25;
  std::vector<std::unique_ptr<PlainWorker>> workers;
  for (SlotId slot = 0; slot < kWorkers; ++slot) workers.push_back(Enter(slot));
  std::vector<Step> done(kWorkers, 0);
  std::atomic<bool> first_is_through{false};
  // Locked until all threads have started, so that they push at the same time.
  Mutex start;
  start.Lock();
  std::vector<std::thread> threads;
  for (SlotId slot = 0; slot < kWorkers; ++slot) {
    threads.emplace_back([&, slot] {
      { MutexLock wait(&start); }
      for (Step step = 1; !first_is_through && step <= kSteps; ++step) {
        const absl::StatusOr<PushReply> reply = workers[slot]->Push(step, 1.0f);
        ASSERT_TRUE(reply.ok()) << "slot " << slot << ": " << reply.status();
        done[slot] = step;
      }
      first_is_through = true;
    });
  }
  start.Unlock();
  for (std::thread& thread : threads) thread.join();
  const auto [least, most] = std::minmax_element(done.begin(), done.end());
  EXPECT_GE(*least, 0.8 * *most);

  const ServerStatus status = Status(*workers[0]);
  EXPECT_LE(status.receive_bytes_peak(), kShares * kBlockBytes);
  // The workers used the whole budget, because more of them wanted to push than it admits.
  EXPECT_EQ(status.receive_bytes_peak(), kShares * kBlockBytes);
  // The worker may receive the answer shortly before the server frees the frame.
  EXPECT_TRUE(Eventually([&] { return Status(*workers[0]).frame_bytes_held() == 0; }));
}

TEST_F(BackPressureTest, PullCopiesStayWithinTheirBudget) {
  StartServer(/*slow=*/1);
  std::vector<std::unique_ptr<PlainWorker>> workers;
  for (SlotId slot = 0; slot < 8; ++slot) workers.push_back(Enter(slot));
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&worker] {
      for (int i = 0; i < 50; ++i) ASSERT_TRUE(worker->Pull(/*clock=*/0).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ServerStatus status = Status(*workers[0]);
  EXPECT_GE(status.send_bytes_peak(), kBlockBytes);
  EXPECT_LE(status.send_bytes_peak(), kShares * kBlockBytes);
  EXPECT_TRUE(Eventually([&] { return Status(*workers[0]).frame_bytes_held() == 0; }));
}

TEST_F(BackPressureTest, AStalledPushDoesNotStopOtherWorkers) {
  StartServer(/*slow=*/1);
  const auto stalled = Enter(0);
  const auto other = Enter(1);
  const StalledPush push(*stalled);
  ASSERT_TRUE(Eventually([&] { return Status(*stalled).frame_bytes_held() == kBlockBytes; }));
  for (Step step = 1; step <= 20; ++step) ASSERT_TRUE(other->Push(step, 1.0f).ok());
}

TEST_F(BackPressureTest, QueuedPushesContinueAfterAStalledWorkerLeaves) {
  StartServer(/*slow=*/1);
  std::vector<std::unique_ptr<PlainWorker>> workers;
  std::vector<std::unique_ptr<StalledPush>> pushes;
  for (SlotId slot = 0; slot < kShares; ++slot) {
    workers.push_back(Enter(slot));
    pushes.push_back(std::make_unique<StalledPush>(*workers.back()));
  }
  const auto other = Enter(kShares);
  ASSERT_TRUE(
      Eventually([&] { return Status(*other).frame_bytes_held() == kShares * kBlockBytes; }));
  std::atomic<bool> has_pushed{false};
  std::thread waiting([&] {
    EXPECT_TRUE(other->Push(/*step=*/1, 1.0f).ok());
    has_pushed = true;
  });
  // A push that waits for the budget and is cancelled must not block the pushes behind it.
  {
    const auto gone = Enter(kShares + 1);
    const StalledPush in_line(*gone);
  }
  EXPECT_FALSE(has_pushed);
  pushes.pop_back();
  waiting.join();
  EXPECT_TRUE(has_pushed);
  pushes.clear();
  EXPECT_TRUE(Eventually([&] { return Status(*other).frame_bytes_held() == 0; }));
}

TEST_F(BackPressureTest, TheServerRefusesASlowdownFactorBelowOne) {
  Server::Options options;
  options.clock = &clock_;
  options.slow = 0.5;
  const auto server = Server::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(server.status().message(), "slow is 0.5; expected at least 1");
}

}  // namespace
}  // namespace torchps
