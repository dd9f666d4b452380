// Tests that a worker sends ahead of the server's reads. bench/run.sh --case=memory measures how
// far, as the memory of a slow server.

#include "torchps/server/rpc/receive_window.h"

#include <chrono>
#include <memory>

#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/plain_worker.h"
#include "torchps/server/server.h"

namespace torchps {
namespace {

// Each block is 64 KiB, the size of gRPC's default window.
constexpr int64_t kBlockElements = 16 << 10;
constexpr int64_t kBlocks = 8;

// Starts a server that receives one frame at a time, and two workers.
class ReceiveWindowTest : public ::testing::Test {
 protected:
  void Start(bool sets_receive_window) {
    Server::Options options;
    options.clock = &clock_;
    options.receive_bytes = 1;
    options.sets_receive_window = sets_receive_window;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    JobHarness::Options model;
    model.trained = kBlocks * kBlockElements;
    model.block_elements = kBlockElements;
    model.job = "consistency { staleness_bound: -1 }";
    HelloRequest hello = JobHarness::Hello(model);
    hello.set_incarnation(1);
    hello.set_slot(0);
    first_ = std::make_unique<PlainWorker>(PlainChannel(server_->address()), hello);
    hello.set_slot(1);
    second_ = std::make_unique<PlainWorker>(PlainChannel(server_->address()), hello);
    ASSERT_TRUE(first_->Hello().ok());
    ASSERT_TRUE(second_->Hello().ok());
    ASSERT_TRUE(first_->Initialize(1).ok());
  }

  // Does not advance, so that the stalled push does not time out.
  ManualClock clock_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<PlainWorker> first_;
  std::unique_ptr<PlainWorker> second_;
};

TEST_F(ReceiveWindowTest, AWorkerSendsAWholePushBeforeTheServerReadsIt) {
  if (!CanSetReceiveWindow()) GTEST_SKIP() << "this gRPC version does not support a window";
  ASSERT_NO_FATAL_FAILURE(Start(/*sets_receive_window=*/true));
  // The first worker's call holds the whole budget: it reserves bytes for a frame that it does not
  // send yet.
  grpc::ClientContext holding;
  PushReply held;
  const auto stalled = first_->stub().Push(&holding, &held);
  ASSERT_TRUE(Eventually([&] {
    const auto status = first_->Status();
    return status.ok() && status->frame_bytes_held() > 0;
  }));

  grpc::ClientContext running;
  running.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  PushReply ran;
  const auto ahead = second_->stub().Push(&running, &ran);
  for (const BlockRange& block : second_->blocks()) {
    // Blocks if the window is full; with gRPC's default of 64 KiB it would block forever.
    ASSERT_TRUE(ahead->Write(second_->Frame(1, block.id, 1))) << "block " << block.id;
  }
  EXPECT_EQ(first_->Status()->verdicts().accepted(), 0);

  for (const BlockRange& block : first_->blocks()) {
    ASSERT_TRUE(stalled->Write(first_->Frame(1, block.id, 1)));
  }
  ASSERT_TRUE(stalled->WritesDone());
  ASSERT_TRUE(ahead->WritesDone());
  EXPECT_TRUE(stalled->Finish().ok());
  EXPECT_TRUE(ahead->Finish().ok());
  EXPECT_EQ(first_->Status()->verdicts().accepted(), 2 * kBlocks);
}

// Without a receive window, as with every gRPC version except 1.51.
TEST_F(ReceiveWindowTest, AppliesPushesWithTheDefaultWindow) {
  ASSERT_NO_FATAL_FAILURE(Start(/*sets_receive_window=*/false));
  constexpr uint64_t kSteps = 5;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    for (const auto& worker : {first_.get(), second_.get()}) {
      const auto reply = worker->Push(step, 1);
      ASSERT_TRUE(reply.ok()) << reply.status();
    }
  }
  EXPECT_EQ(first_->Status()->verdicts().accepted(), 2 * kSteps * kBlocks);
}

}  // namespace
}  // namespace torchps
