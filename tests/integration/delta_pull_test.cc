// Tests that a pull omits exactly the blocks that have not changed since the last pull.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/clock.h"
#include "torchps/server/server.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

using ::testing::Each;

constexpr int64_t kBlockElements = 16;
// Blocks 0 to 2 are trained, block 3 is averaged.
constexpr int64_t kTrained = 3 * kBlockElements;
constexpr int64_t kAveraged = 8;
// Value that the servers of these tests never send.
constexpr float kUntouched = 123;

class DeltaPullTest : public ::testing::Test {
 protected:
  DeltaPullTest() { StartServer(/*seed=*/1); }

  void StartServer(uint64_t seed) {
    Server::Options options;
    options.clock = &clock_;
    options.seed = seed;
    auto server = Server::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  static HelloRequest Hello(SlotId slot, const std::string& wire = "") {
    JobHarness::Options options;
    options.trained = kTrained;
    options.averaged = kAveraged;
    options.block_elements = kBlockElements;
    options.job = "consistency { staleness_bound: -1 } wire { shared_memory: false " + wire + " }";
    HelloRequest hello = JobHarness::Hello(options);
    hello.set_slot(slot);
    return hello;
  }

  // Returns a worker as slot 1 after one whole push. It changes the values that slot 0 pulls.
  std::unique_ptr<PlainWorker> EnterTrainer(const std::string& wire = "") {
    auto worker = std::make_unique<PlainWorker>(PlainChannel(server_->address()), Hello(1, wire));
    EXPECT_TRUE(worker->Hello().ok());
    EXPECT_TRUE(worker->Initialize(5).ok());
    const auto pushed = worker->Push(/*step=*/1, 1.0f);
    EXPECT_TRUE(pushed.ok()) << pushed.status();
    return worker;
  }

  // Advances one block by a step. The server refuses the push itself because it lacks the other
  // blocks.
  static void ChangeBlock(PlainWorker& worker, BlockId block) {
    EXPECT_FALSE(worker.Send({worker.Frame(/*step=*/2, block, 1.0f)}).ok());
  }

  std::unique_ptr<ParameterClient> EnterClient(const std::string& wire = "") {
    const HelloRequest hello = Hello(0, wire);
    ParameterClient::Options options;
    options.servers = {ConnectToServer(0, server_->address())};
    options.layout = *DecodeLayout(hello.layout());
    options.block_map =
        *BlockMap::Create(options.layout, hello.job().wire().block_bytes(), /*servers=*/1);
    options.job = hello.job();
    options.job_id = hello.job_id();
    options.incarnation = hello.incarnation();
    options.clock = &clock_;
    options.stop = &stop_;
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE((*client)->Hello().ok());
    return *std::move(client);
  }

  // Fills values_ with kUntouched before the pull, so that the test sees which blocks the server
  // sent.
  void Pull(ParameterClient& client, CachedVersions* held, bool read_only = false) {
    values_.assign(kTrained + kAveraged, kUntouched);
    const auto pulled = client.Pull(/*clock=*/0, read_only, absl::MakeSpan(values_), held);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
  }

  std::vector<float> Block(BlockId block) const {
    const auto begin = values_.begin() + block * kBlockElements;
    return {begin, begin + (block < 3 ? kBlockElements : kAveraged)};
  }

  SteadyClock clock_;
  StopLatch stop_;
  std::unique_ptr<Server> server_;
  std::vector<float> values_;
};

TEST_F(DeltaPullTest, ASecondPullSendsOnlyChangedBlocks) {
  const auto trainer = EnterTrainer();
  const auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  EXPECT_THAT(Block(0), Each(4.0f));
  EXPECT_THAT(Block(1), Each(4.0f));

  ChangeBlock(*trainer, 1);
  Pull(*client, &held);
  EXPECT_THAT(Block(0), Each(kUntouched));
  EXPECT_THAT(Block(1), Each(3.0f));
  EXPECT_THAT(Block(2), Each(kUntouched));
}

TEST_F(DeltaPullTest, AveragedBlocksAreAlwaysSent) {
  const auto trainer = EnterTrainer();
  const auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  const std::vector<float> averaged = Block(3);
  Pull(*client, &held);
  EXPECT_EQ(Block(3), averaged);
  EXPECT_THAT(Block(0), Each(kUntouched));
}

TEST_F(DeltaPullTest, APullAfterASecondInitializationSendsTheNewValues) {
  PlainWorker trainer(PlainChannel(server_->address()), Hello(1));
  ASSERT_TRUE(trainer.Hello().ok());
  ASSERT_TRUE(trainer.Initialize(5).ok());
  const auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  ASSERT_TRUE(trainer.Initialize(6).ok());
  Pull(*client, &held);
  EXPECT_THAT(Block(0), Each(6.0f));
}

TEST_F(DeltaPullTest, APullIntoAnotherBufferSendsEverything) {
  const auto trainer = EnterTrainer();
  const auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  CachedVersions others;
  Pull(*client, &others);
  EXPECT_THAT(Block(0), Each(4.0f));
  Pull(*client, nullptr);
  EXPECT_THAT(Block(0), Each(4.0f));
}

TEST_F(DeltaPullTest, IgnoresVersionsOfAnotherServerIncarnation) {
  auto trainer = EnterTrainer();
  auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  client.reset();
  server_->Stop();
  StartServer(/*seed=*/1000);
  // The blocks reach the same version as before, with other values.
  trainer = std::make_unique<PlainWorker>(PlainChannel(server_->address()), Hello(1));
  ASSERT_TRUE(trainer->Hello().ok());
  ASSERT_TRUE(trainer->Initialize(8).ok());
  ASSERT_TRUE(trainer->Push(/*step=*/1, 1.0f).ok());
  client = EnterClient();
  Pull(*client, &held);
  EXPECT_THAT(Block(0), Each(7.0f));
}

TEST_F(DeltaPullTest, AReadOnlyPullSendsOnlyChangedBlocks) {
  const auto trainer = EnterTrainer();
  const auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  ChangeBlock(*trainer, 2);
  Pull(*client, &held, /*read_only=*/true);
  EXPECT_THAT(Block(0), Each(kUntouched));
  EXPECT_THAT(Block(2), Each(3.0f));
}

TEST_F(DeltaPullTest, AReadOnlyPullSendsExactValuesInPlaceOfDecodedOnes) {
  const std::string wire = "pull { kind: BFLOAT16 }";
  const auto trainer = EnterTrainer(wire);
  const auto client = EnterClient(wire);
  CachedVersions held;
  Pull(*client, &held);
  Pull(*client, &held, /*read_only=*/true);
  EXPECT_THAT(Block(0), Each(4.0f));
  // The read-only pull sent values of the current version, so this pull need not send the block
  // again.
  Pull(*client, &held);
  EXPECT_THAT(Block(0), Each(kUntouched));
}

TEST_F(DeltaPullTest, AFailedPullForgetsCachedVersions) {
  const auto trainer = EnterTrainer();
  const auto client = EnterClient();
  CachedVersions held;
  Pull(*client, &held);
  stop_.Stop("enough");
  EXPECT_FALSE(client->Pull(0, false, absl::MakeSpan(values_), &held).ok());
  EXPECT_TRUE(held.versions.empty());
}

TEST_F(DeltaPullTest, RefusesAPullWithVersionsOfAnotherNumberOfBlocks) {
  const auto trainer = EnterTrainer();
  PullRequest request = trainer->RequestPull(/*clock=*/1);
  request.add_have_version(1);
  const absl::Status status = trainer->Pull(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "have_version lists 1 blocks; this server owns 4");
}

}  // namespace
}  // namespace torchps
