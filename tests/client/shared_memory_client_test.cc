// Tests the ParameterClient with servers that share memory, servers that do not, and servers that
// have stopped sharing it.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_parameter_server.h"
#include "torchps/client/parameter_client.h"
#include "torchps/transport/shared_layout.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Two servers and blocks of 16 elements: 80 trained elements in blocks 0 to 4, and 10 averaged
// elements in block 5. Server 0 owns blocks 0, 2 and 4.
class SharedMemoryClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef TORCHPS_TSAN
    // Client and server share memory through Debian's gRPC, which is not instrumented.
    GTEST_SKIP() << "ThreadSanitizer cannot see gRPC's synchronization";
#endif
    Segment trained;
    trained.name = "weight";
    trained.shape = {80};
    Segment averaged;
    averaged.name = "running_mean";
    averaged.shape = {10};
    averaged.averaged = true;
    layout_ = *ModelLayout::Create({trained, averaged});
    map_ = *BlockMap::Create(layout_, 64, 2);
    for (int index = 0; index < 2; ++index) {
      servers_.push_back(std::make_unique<FakeParameterServer>(index, map_));
      auto values = SharedSegment::Create("test", ValueSegmentLayout(map_, index).bytes());
      ASSERT_TRUE(values.ok()) << values.status();
      values_.push_back(*std::move(values));
      SetUpBlocks(index);
    }
    segment_ = *PushSegment::Create(layout_);
    for (float& gradient : Gradients()) gradient = 0.5f;
  }

  // Sets block b to version 200 + b and each element to -b. Through the network the values are b.
  void SetUpBlocks(int server) {
    for (size_t i = 0; i < map_.owned_by(server).size(); ++i) {
      const BlockRange& block = map_.blocks()[map_.owned_by(server)[i]];
      Head(server, i).BeginChange();
      float* const values = reinterpret_cast<float*>(values_[server]->data() +
                                                     ValueSegmentLayout(map_, server).GetValues(i));
      std::fill_n(values, block.length, -static_cast<float>(block.id));
      Head(server, i).EndChange(200 + block.id);
    }
  }

  SharedBlock& Head(int server, size_t index) {
    return *reinterpret_cast<SharedBlock*>(values_[server]->data() +
                                           ValueSegmentLayout(map_, server).GetHead(index));
  }

  // The server's reply to Hello offers `offer`.
  void Offer(int server, const SharedSegment::Offer& offer) {
    HelloReply reply;
    reply.set_server_incarnation(1000 + server);
    reply.set_initialized(true);
    *reply.mutable_shared_memory() = EncodeOffer(offer);
    servers_[server]->SetHelloReply(reply);
  }

  std::unique_ptr<ParameterClient> Greet() {
    ParameterClient::Options options;
    for (const auto& server : servers_) options.servers.push_back(server->endpoint());
    options.layout = layout_;
    options.block_map = map_;
    options.job.mutable_wire()->set_shared_memory(may_share_);
    options.slot = 3;
    options.incarnation = 5;
    options.push_segment = segment_.get();
    options.log = [this](const std::string& line) { logged_.push_back(line); };
    options.clock = &clock_;
    options.stop = &stop_;
    auto client = *ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client->Hello().ok());
    return client;
  }

  absl::Status Push(ParameterClient& client, absl::Span<const float> gradients) {
    return client.Push(/*step=*/1, /*weight=*/8, gradients, averaged_).status();
  }
  absl::Status Push(ParameterClient& client) { return Push(client, Gradients()); }

  absl::Span<float> Gradients(int buffer = 0) {
    return segment_->buffer(buffer).first(layout_.trained_size());
  }

  // Pulls and checks the values. Only the blocks in `network` may arrive through the network.
  void ExpectPull(ParameterClient& client, const std::vector<BlockId>& network) {
    std::vector<float> pulled(layout_.size(), 99.0f);
    const auto result = client.Pull(/*clock=*/0, /*read_only=*/false, absl::MakeSpan(pulled));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->min_clock, 7);
    for (const BlockRange& block : map_.blocks()) {
      const bool by_network = std::count(network.begin(), network.end(), block.id) > 0;
      const float expected = static_cast<float>(block.id) * (by_network ? 1.0f : -1.0f);
      for (int64_t i = 0; i < block.length; ++i) {
        ASSERT_EQ(pulled[block.offset + i], expected) << "block " << block.id;
      }
    }
  }

  SteadyClock clock_;
  StopLatch stop_;
  ModelLayout layout_;
  BlockMap map_;
  std::vector<std::unique_ptr<FakeParameterServer>> servers_;
  std::vector<std::unique_ptr<SharedSegment>> values_;
  std::unique_ptr<PushSegment> segment_;
  std::vector<float> averaged_ = std::vector<float>(10, 0.75f);
  bool may_share_ = true;
  std::vector<std::string> logged_;
};

TEST_F(SharedMemoryClientTest, PushAndPullMoveNoValuesThroughTheNetwork) {
  for (int server = 0; server < 2; ++server) Offer(server, values_[server]->offer());
  const auto client = Greet();
  EXPECT_EQ(servers_[0]->hellos()[0].shared_memory().nonce(), segment_->offer().nonce);
  ExpectPull(*client, /*network=*/{});
  const auto pushed = client->Push(1, 8, Gradients(), averaged_);
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->verdicts.accepted(), 6);
  for (int server = 0; server < 2; ++server) {
    // Each block was pulled at a different version, so each has a separate frame.
    ASSERT_THAT(servers_[server]->pushes(), SizeIs(1));
    const std::vector<PushFrame> frames = servers_[server]->pushes()[0].frames;
    ASSERT_THAT(frames, SizeIs(3));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_THAT(frames[i].payload(), IsEmpty());
      EXPECT_EQ(frames[i].block(), map_.owned_by(server)[i]);
      EXPECT_EQ(frames[i].shared_blocks(), 1);
      EXPECT_EQ(frames[i].base_version(), 200 + frames[i].block());
      EXPECT_EQ(frames[i].block_count(), 3);
    }
  }
  EXPECT_THAT(segment_->buffer(0).subspan(layout_.trained_size()), ::testing::Each(0.75f));
  EXPECT_THAT(logged_, IsEmpty());
}

// Workers with a device do this: their steps alternate between two buffers.
TEST_F(SharedMemoryClientTest, EachPushNamesTheBufferThatHoldsItsGradient) {
  segment_ = *PushSegment::Create(layout_, /*buffers=*/2);
  for (int server = 0; server < 2; ++server) Offer(server, values_[server]->offer());
  const auto client = Greet();
  for (const int buffer : {0, 1}) {
    // The values to average are already in the buffer, so the client need not copy them.
    const absl::Span<float> all = segment_->buffer(buffer);
    std::fill(all.begin(), all.end(), 1.0f + buffer);
    ASSERT_EQ(client
                  ->Push(/*step=*/1 + buffer, /*weight=*/8, Gradients(buffer),
                         all.subspan(layout_.trained_size()))
                  .status(),
              absl::OkStatus());
    for (int server = 0; server < 2; ++server) {
      const std::vector<PushFrame> frames = servers_[server]->pushes()[buffer].frames;
      ASSERT_THAT(frames, Not(IsEmpty()));
      for (const PushFrame& frame : frames) {
        EXPECT_GT(frame.shared_blocks(), 0);
        EXPECT_EQ(frame.shared_buffer(), buffer);
      }
    }
    EXPECT_THAT(all, ::testing::Each(1.0f + buffer));
  }
}

TEST_F(SharedMemoryClientTest, DoesNotCopyUnchangedBlocks) {
  for (int server = 0; server < 2; ++server) Offer(server, values_[server]->offer());
  const auto client = Greet();
  std::vector<float> pulled(layout_.size());
  CachedVersions held;
  ASSERT_TRUE(client->Pull(0, /*read_only=*/false, absl::MakeSpan(pulled), &held).ok());
  std::fill(pulled.begin(), pulled.end(), 99.0f);
  Head(0, 1).BeginChange();
  Head(0, 1).EndChange(300);
  std::vector<BlockId> told;
  const auto on_block = [&](BlockId block) { told.push_back(block); };
  ASSERT_TRUE(client->Pull(0, /*read_only=*/false, absl::MakeSpan(pulled), &held, on_block).ok());
  // Blocks that did not change are reported, too.
  EXPECT_THAT(told, UnorderedElementsAre(0, 1, 2, 3, 4, 5));
  // Block 2 has changed. Block 5 is averaged: the worker changes it too, so it is copied at each
  // pull.
  const std::vector<float> expected = {99.0f, 99.0f, -2.0f, 99.0f, 99.0f, -5.0f};
  for (const BlockRange& block : map_.blocks()) {
    EXPECT_EQ(pulled[block.offset], expected[block.id]) << "block " << block.id;
  }
}

TEST_F(SharedMemoryClientTest, SendsBlocksOfOneVersionInOneFrame) {
  Offer(0, values_[0]->offer());
  const auto client = Greet();
  ASSERT_EQ(Push(*client), absl::OkStatus());
  ASSERT_THAT(servers_[0]->pushes()[0].frames, SizeIs(1));
  EXPECT_EQ(servers_[0]->pushes()[0].frames[0].shared_blocks(), 3);
  // Server 1 has not offered shared memory, so it receives the elements.
  ASSERT_THAT(servers_[1]->pushes()[0].frames, SizeIs(3));
  const std::vector<PushFrame> frames = servers_[1]->pushes()[0].frames;
  for (const PushFrame& frame : frames) {
    EXPECT_EQ(frame.shared_blocks(), 0);
    EXPECT_FALSE(frame.payload().empty());
  }
  ExpectPull(*client, {1, 3, 5});
  ASSERT_THAT(logged_, SizeIs(1));
  EXPECT_THAT(logged_[0], HasSubstr("the network"));
}

TEST_F(SharedMemoryClientTest, SendsAGradientOutsideTheSegmentThroughTheNetwork) {
  Offer(0, values_[0]->offer());
  const auto client = Greet();
  const std::vector<float> elsewhere(80, 2.0f);
  ASSERT_EQ(Push(*client, elsewhere), absl::OkStatus());
  ASSERT_EQ(client->Initialize(std::vector<float>(90, 1.0f)), absl::OkStatus());
  for (const auto& push : servers_[0]->pushes()) {
    ASSERT_THAT(push.frames, SizeIs(3));
    for (const PushFrame& frame : push.frames) EXPECT_EQ(frame.shared_blocks(), 0);
  }
}

TEST_F(SharedMemoryClientTest, MakesNoOfferIfTheJobForbids) {
  may_share_ = false;
  Offer(0, values_[0]->offer());
  const auto client = Greet();
  EXPECT_FALSE(servers_[0]->hellos()[0].has_shared_memory());
  ExpectPull(*client, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(SharedMemoryClientTest, DeclinesAForgedOffer) {
  SharedSegment::Offer other = values_[0]->offer();
  other.nonce ^= 1;
  Offer(0, other);
  Offer(1, values_[1]->offer());
  const auto client = Greet();
  ExpectPull(*client, {0, 2, 4});
  ASSERT_THAT(logged_, SizeIs(1));
  EXPECT_THAT(logged_[0], HasSubstr("server 0"));
  EXPECT_THAT(logged_[0], HasSubstr("is not the offered segment"));
}

TEST_F(SharedMemoryClientTest, PullsThroughTheNetworkWhileABlockIsBeingChanged) {
  for (int server = 0; server < 2; ++server) Offer(server, values_[server]->offer());
  const auto client = Greet();
  // The block looks as if its server crashed during an update.
  Head(0, 1).BeginChange();
  std::vector<float> pulled(layout_.size());
  const auto result = client->Pull(0, /*read_only=*/false, absl::MakeSpan(pulled));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(pulled[map_.blocks()[2].offset], 2.0f);
  ASSERT_THAT(servers_[0]->pulls(), SizeIs(2));
  EXPECT_TRUE(servers_[0]->pulls()[0].shared_memory());
  EXPECT_FALSE(servers_[0]->pulls()[1].shared_memory());
  EXPECT_THAT(servers_[1]->pulls(), SizeIs(1));
  // The next pull tries shared memory again.
  Head(0, 1).EndChange(300);
  ExpectPull(*client, {});
}

TEST_F(SharedMemoryClientTest, UsesTheNetworkAfterAServerStopsSharing) {
  for (int server = 0; server < 2; ++server) Offer(server, values_[server]->offer());
  const auto client = Greet();
  HelloReply restarted;
  restarted.set_server_incarnation(77);
  restarted.set_initialized(true);
  servers_[1]->SetHelloReply(restarted);
  servers_[1]->AddPushFault({grpc::StatusCode::ABORTED, 0, "restarted"});
  ASSERT_EQ(Push(*client), absl::OkStatus());
  ASSERT_THAT(servers_[1]->pushes(), SizeIs(2));
  EXPECT_THAT(servers_[1]->pushes()[1].frames, SizeIs(3));
  EXPECT_EQ(servers_[1]->pushes()[1].frames[0].shared_blocks(), 0);
  EXPECT_EQ(servers_[1]->pushes()[1].frames[0].server_incarnation(), 77);
  ExpectPull(*client, {1, 3, 5});
}

TEST_F(SharedMemoryClientTest, ARepeatedPushNamesTheSameBlocks) {
  Offer(0, values_[0]->offer());
  const auto client = Greet();
  servers_[0]->AddPushFault({grpc::StatusCode::UNAVAILABLE, 1, "cut"});
  ASSERT_EQ(Push(*client), absl::OkStatus());
  ASSERT_THAT(servers_[0]->pushes(), SizeIs(2));
  ASSERT_THAT(servers_[0]->pushes()[1].frames, SizeIs(1));
  EXPECT_EQ(servers_[0]->pushes()[1].frames[0].shared_blocks(), 3);
}

TEST_F(SharedMemoryClientTest, ReadOnlyPullsUseTheNetwork) {
  Offer(0, values_[0]->offer());
  const auto client = Greet();
  std::vector<float> pulled(layout_.size());
  ASSERT_TRUE(client->Pull(0, /*read_only=*/true, absl::MakeSpan(pulled)).ok());
  EXPECT_FALSE(servers_[0]->pulls()[0].shared_memory());
}

}  // namespace
}  // namespace torchps
