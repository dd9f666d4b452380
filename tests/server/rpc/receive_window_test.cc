// A worker sends ahead of what the server has asked for. How far at most, the bench measures as the
// memory of a slow server (bench/run.sh --case=memory).

#include "server/rpc/receive_window.h"

#include <chrono>

#include "common/clock.h"
#include "gtest/gtest.h"
#include "server/server.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"

namespace torchps {
namespace {

constexpr int64_t kBlockElements = 16 << 10;
constexpr int64_t kBlocks = 8;

TEST(ReceiveWindowTest, APushRunsAheadWhileAnotherOneHoldsTheBudget) {
  if (!CanSetReceiveWindow()) GTEST_SKIP() << "this gRPC cannot be told a window";
  const SteadyClock clock;
  Server::Options options;
  options.clock = &clock;
  // One frame at a time, whoever sends it.
  options.receive_bytes = 1;
  const auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();

  JobHarness::Options model;
  model.trained = kBlocks * kBlockElements;
  model.block_elements = kBlockElements;
  model.job = "consistency { staleness_bound: -1 }";
  HelloRequest hello = JobHarness::Hello(model);
  hello.set_incarnation(1);
  hello.set_slot(0);
  PlainWorker holder(PlainChannel((*server)->address()), hello);
  hello.set_slot(1);
  PlainWorker runner(PlainChannel((*server)->address()), hello);
  ASSERT_TRUE(holder.Hello().ok());
  ASSERT_TRUE(runner.Hello().ok());
  ASSERT_TRUE(holder.Initialize(1).ok());

  // Its call alone takes the share of the frame that it will bring.
  grpc::ClientContext holding;
  PushReply held;
  const auto stalled = holder.stub().Push(&holding, &held);
  ASSERT_TRUE(Eventually([&] {
    const auto status = holder.Status();
    return status.ok() && status->frame_bytes_held() > 0;
  }));

  grpc::ClientContext running;
  running.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  PushReply ran;
  const auto ahead = runner.stub().Push(&running, &ran);
  for (const BlockRange& block : runner.blocks()) {
    // Blocks where the window is full: with gRPC's own 64 KiB for good.
    ASSERT_TRUE(ahead->Write(runner.Frame(1, block.id, 1))) << "block " << block.id;
  }
  EXPECT_EQ(holder.Status()->verdicts().accepted(), 0);

  for (const BlockRange& block : holder.blocks()) {
    ASSERT_TRUE(stalled->Write(holder.Frame(1, block.id, 1)));
  }
  ASSERT_TRUE(stalled->WritesDone());
  ASSERT_TRUE(ahead->WritesDone());
  EXPECT_TRUE(stalled->Finish().ok());
  EXPECT_TRUE(ahead->Finish().ok());
  EXPECT_EQ(holder.Status()->verdicts().accepted(), 2 * kBlocks);
}

}  // namespace
}  // namespace torchps
