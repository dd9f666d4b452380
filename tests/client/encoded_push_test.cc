// Tests pushes with encoded trained blocks.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_parameter_server.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/pending_push.h"

namespace torchps {
namespace {

using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Fake source of encoded blocks. The bytes of each block contain the block's number.
class FakeBlocks final : public EncodedBlocks {
 public:
  EncodingSpec::Kind encoding() const override { return EncodingSpec::BFLOAT16; }
  bool IsFinite(BlockId block) const override { return block != not_finite_; }
  absl::Span<const uint8_t> GetBytes(BlockId block) const override { return bytes_[block]; }
  void TakeBack(BlockId block) override { taken_back_.push_back(block); }

  std::string Sent(BlockId block) const {
    return std::string(bytes_[block].begin(), bytes_[block].end());
  }

  BlockId not_finite_ = 99;
  std::vector<BlockId> taken_back_;
  std::vector<std::vector<uint8_t>> bytes_ = {
      {0, 63, 0, 63, 0, 63, 0, 63}, {1, 63, 1, 63, 1, 63, 1, 63}, {2, 63, 2, 63}};
};

// Two servers and blocks of four elements: 10 trained elements in blocks 0 to 2, and 2 averaged
// elements in block 3.
class EncodedPushTest : public ::testing::Test {
 protected:
  EncodedPushTest() {
    std::vector<Segment> segments(2);
    segments[0].name = "weight";
    segments[0].shape = {10};
    segments[1].name = "running_mean";
    segments[1].shape = {2};
    segments[1].averaged = true;
    layout_ = *ModelLayout::Create(segments);
    block_map_ = *BlockMap::Create(layout_, 4 * sizeof(float), 2);
    for (int index = 0; index < 2; ++index) {
      servers_.push_back(std::make_unique<FakeParameterServer>(index, block_map_));
    }
    job_.mutable_wire()->mutable_push()->set_kind(EncodingSpec::BFLOAT16);
    job_.mutable_wire()->mutable_push()->set_fraction(1);
  }

  void SetUp() override {
#ifdef TORCHPS_TSAN
    // Client and server share memory through Debian's gRPC, which is not instrumented.
    GTEST_SKIP() << "ThreadSanitizer cannot see gRPC's synchronization";
#endif
  }

  std::unique_ptr<ParameterClient> MakeClient() {
    ParameterClient::Options options;
    for (const auto& server : servers_) options.servers.push_back(server->endpoint());
    options.layout = layout_;
    options.block_map = block_map_;
    options.job = job_;
    options.incarnation = 5;
    options.clock = &clock_;
    options.stop = &stop_;
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  std::unique_ptr<ParameterClient> MakeClientOfBlocks() {
    std::unique_ptr<ParameterClient> client = MakeClient();
    client->TakeEncoded(&blocks_);
    EXPECT_TRUE(client->Hello().ok());
    return client;
  }

  absl::StatusOr<PushResult> Push(ParameterClient* client, Step step, ElementRuns absent = {}) {
    const auto push = client->BeginPush(step, /*weight=*/32, /*gradients=*/{}, averaged_, values_,
                                        /*check_finite=*/true);
    push->AllReady(CallLoop::Urgency::kSoon, std::move(absent));
    return push->Finish();
  }

  // Returns the block's frame in the last push to the block's server.
  PushFrame GetLastFrame(BlockId block) {
    const auto pushes = servers_[block_map_.blocks()[block].server]->pushes();
    for (const PushFrame& frame : pushes.back().frames) {
      if (frame.block() == block) return frame;
    }
    ADD_FAILURE() << "nothing was sent of block " << block;
    return PushFrame();
  }

  SteadyClock clock_;
  StopLatch stop_;
  JobSpec job_;
  ModelLayout layout_;
  BlockMap block_map_;
  std::vector<std::unique_ptr<FakeParameterServer>> servers_;
  std::vector<float> averaged_ = {0.25f, 0.75f};
  std::vector<float> values_ = std::vector<float>(12);
  FakeBlocks blocks_;
};

TEST_F(EncodedPushTest, SendsTrainedBlocksAsEncoded) {
  const auto client = MakeClientOfBlocks();
  const auto result = Push(client.get(), 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->verdicts.accepted(), 4);
  EXPECT_EQ(GetLastFrame(0).payload(), blocks_.Sent(0));
  EXPECT_EQ(GetLastFrame(2).payload(), blocks_.Sent(2));
  EXPECT_EQ(GetLastFrame(1).payload(), blocks_.Sent(1));
  EXPECT_EQ(GetLastFrame(1).encoding(), EncodingSpec::BFLOAT16);
  EXPECT_EQ(GetLastFrame(3).encoding(), EncodingSpec::FLOAT32);
  EXPECT_EQ(GetLastFrame(3).payload().size(), 2 * sizeof(float));
  EXPECT_THAT(blocks_.taken_back_, SizeIs(0));
}

TEST_F(EncodedPushTest, ARepeatedPushSendsTheSameBytes) {
  const auto client = MakeClientOfBlocks();
  servers_[0]->AddPushFault({grpc::UNAVAILABLE, /*after_frames=*/2, "come again"});
  ASSERT_TRUE(Push(client.get(), 1).ok());
  const auto pushes = servers_[0]->pushes();
  ASSERT_THAT(pushes, SizeIs(2));
  for (int index = 0; index < 2; ++index) {
    EXPECT_EQ(pushes[1].frames[index].payload(), pushes[0].frames[index].payload());
  }
  EXPECT_EQ(pushes[1].frames[0].payload(), blocks_.Sent(0));
}

TEST_F(EncodedPushTest, WithholdsNonfiniteBlocks) {
  const auto client = MakeClientOfBlocks();
  blocks_.not_finite_ = 1;
  ASSERT_TRUE(Push(client.get(), 1, {{0, 4}, {8, 9}}).ok());
  EXPECT_TRUE(GetLastFrame(1).withheld());
  EXPECT_EQ(GetLastFrame(1).payload(), "");
  // All of block 0 is absent, and the first element of block 2. Frames with absent elements begin
  // with a table, here of 8 bytes.
  EXPECT_EQ(GetLastFrame(0).payload().size(), 8u);
  EXPECT_EQ(GetLastFrame(2).payload().substr(8), blocks_.Sent(2));
  EXPECT_EQ(GetLastFrame(2).encoding(), EncodingSpec::BFLOAT16);
}

TEST_F(EncodedPushTest, ReturnsRejectedBlocksToTheirSource) {
  const auto client = MakeClientOfBlocks();
  servers_[0]->SetVerdict(REJECTED_STALE, /*lag=*/9);
  ASSERT_TRUE(Push(client.get(), 1).ok());
  EXPECT_THAT(blocks_.taken_back_, UnorderedElementsAre(0, 2));
}

TEST_F(EncodedPushTest, SendsInitialValuesUnencoded) {
  const auto client = MakeClientOfBlocks();
  ASSERT_TRUE(client->Initialize(values_).ok());
  EXPECT_EQ(GetLastFrame(0).encoding(), EncodingSpec::FLOAT32);
  EXPECT_EQ(GetLastFrame(0).payload().size(), 4 * sizeof(float));
}

TEST_F(EncodedPushTest, RefusesEncodedBlocksIfFloatsAreNeeded) {
  EXPECT_TRUE(MakeClient()->CanTakeEncoded());
  auto* const sgd = job_.mutable_optimizer()->mutable_sgd();
  sgd->set_momentum(0.9);
  sgd->set_momentum_at(SgdSpec::WORKER);
  EXPECT_FALSE(MakeClient()->CanTakeEncoded()) << "a momentum";
  job_.clear_optimizer();
  job_.mutable_wire()->mutable_push()->set_kind(EncodingSpec::FLOAT32);
  EXPECT_FALSE(MakeClient()->CanTakeEncoded()) << "no encoding";
}

}  // namespace
}  // namespace torchps
