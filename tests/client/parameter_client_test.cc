#include "torchps/client/parameter_client.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_parameter_server.h"
#include "tests/testing/eventually.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Property;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Two servers and blocks of four elements: 10 trained elements in blocks 0 to 2, and 2 averaged
// elements in block 3.
class ParameterClientTest : public ::testing::Test {
 protected:
  ParameterClientTest() {
    Segment trained;
    trained.name = "weight";
    trained.shape = {10};
    Segment averaged;
    averaged.name = "running_mean";
    averaged.shape = {2};
    averaged.averaged = true;
    layout_ = *ModelLayout::Create({trained, averaged});
    block_map_ = *BlockMap::Create(layout_, 4 * sizeof(float), 2);
    for (int index = 0; index < 2; ++index) {
      servers_.push_back(std::make_unique<FakeParameterServer>(index, block_map_));
    }
    gradients_.resize(layout_.trained_size());
    std::iota(gradients_.begin(), gradients_.end(), 1.0f);
    values_.resize(layout_.size());
  }

  void SetUp() override {
#ifdef TORCHPS_TSAN
    // Client and server share memory through Debian's gRPC, which is not instrumented.
    GTEST_SKIP() << "ThreadSanitizer cannot see gRPC's synchronization";
#endif
  }

  std::unique_ptr<ParameterClient> MakeClient(absl::Duration patience = absl::Seconds(60)) {
    ParameterClient::Options options;
    for (const auto& server : servers_) options.servers.push_back(server->endpoint());
    options.layout = layout_;
    options.block_map = block_map_;
    options.job = job_;
    options.job.set_name("the job");
    options.job_id = 77;
    options.resumed_checkpoint = 4;
    options.slot = slot_;
    options.incarnation = 5;
    options.patience = patience;
    options.log = [this](const std::string& line) { logged_.push_back(line); };
    options.clock = client_clock_;
    options.stop = &stop_;
    options.loop = loop_.get();
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  absl::StatusOr<PushResult> Push(ParameterClient& client, Step step) {
    return client.Push(step, /*weight=*/32, gradients_, averaged_);
  }

  static std::vector<float> Payload(const PushFrame& frame) {
    std::vector<float> floats(frame.payload().size() / sizeof(float));
    std::memcpy(floats.data(), frame.payload().data(), frame.payload().size());
    return floats;
  }

  SteadyClock clock_;
  const Clock* client_clock_ = &clock_;
  StopLatch stop_;
  JobSpec job_;
  ModelLayout layout_;
  BlockMap block_map_;
  std::vector<std::unique_ptr<FakeParameterServer>> servers_;
  std::vector<float> gradients_;
  std::vector<float> averaged_ = {0.25f, 0.75f};
  std::vector<float> values_;
  std::vector<std::string> logged_;
  SlotId slot_ = 3;
  // If null, each client creates its own loop.
  std::unique_ptr<CallLoop> loop_;
};

TEST_F(ParameterClientTest, HelloStartsAtTheLargestClock) {
  HelloReply reply;
  reply.set_server_incarnation(11);
  reply.set_min_clock(4);
  servers_[0]->SetHelloReply(reply);
  reply.set_server_incarnation(12);
  reply.set_min_clock(2);
  reply.set_last_step(9);
  servers_[1]->SetHelloReply(reply);
  const auto client = MakeClient();
  const auto start = client->Hello();
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(*start, 9);
  ASSERT_THAT(servers_[1]->hellos(), SizeIs(1));
  const HelloRequest hello = servers_[1]->hellos()[0];
  EXPECT_EQ(hello.server_index(), 1);
  EXPECT_EQ(hello.server_count(), 2);
  EXPECT_THAT(hello.server_address(),
              ElementsAre(servers_[0]->endpoint().address, servers_[1]->endpoint().address));
  EXPECT_EQ(hello.slot(), 3);
  EXPECT_EQ(hello.incarnation(), 5);
  EXPECT_EQ(hello.job_id(), 77);
  EXPECT_EQ(hello.resumed_checkpoint(), 4);
  EXPECT_EQ(hello.job().name(), "the job");
  EXPECT_EQ(hello.layout().segment_size(), 2);
  EXPECT_THAT(hello.server_address(), ::testing::ElementsAre(servers_[0]->endpoint().address,
                                                             servers_[1]->endpoint().address));
}

TEST_F(ParameterClientTest, EntersNoServerBeforeAllHaveAnswered) {
  const auto client = MakeClient(/*patience=*/absl::ZeroDuration());
  servers_[1]->AddRenewFault({grpc::UNAVAILABLE});
  EXPECT_EQ(client->Hello().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(servers_[0]->hellos(), IsEmpty());
  servers_[1]->AddRenewFault(
      {grpc::ABORTED});  // the answer of a server that does not know the slot
  EXPECT_TRUE(client->Hello().ok());
  EXPECT_THAT(servers_[0]->hellos(), SizeIs(1));
}

TEST_F(ParameterClientTest, ASyncStepIsLateOnceAllServersFinishedItsRound) {
  job_.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  RenewReply reply;
  const auto tell = [&](int server, int64_t min_clock) {
    reply.set_min_clock(min_clock);
    servers_[server]->SetRenewReply(reply);
  };
  tell(0, 5);
  tell(1, 4);
  EXPECT_FALSE(client->IsTooLate(5)) << "server 1 still collects it";
  tell(1, 5);
  EXPECT_TRUE(client->IsTooLate(5));
  EXPECT_FALSE(client->IsTooLate(6));
}

TEST_F(ParameterClientTest, AnAsyncStepIsLateBeyondMaxLag) {
  job_.mutable_consistency()->mutable_lag()->set_policy(LagContract::REJECT);
  job_.mutable_consistency()->mutable_lag()->set_max_lag(3);
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  // Blocks 0 and 2 have versions 100 and 102, blocks 1 and 3 versions 101 and 103.
  ASSERT_TRUE(client->Pull(0, /*read_only=*/false, absl::MakeSpan(values_)).ok());
  RenewReply reply;
  const auto tell = [&](int server, Version version) {
    reply.set_max_version(version);
    servers_[server]->SetRenewReply(reply);
  };
  tell(0, 106);
  tell(1, 106);
  EXPECT_FALSE(client->IsTooLate(1)) << "server 1's block has a lag of 3";
  tell(1, 107);
  EXPECT_TRUE(client->IsTooLate(1));
  tell(0, 105);
  EXPECT_FALSE(client->IsTooLate(1));
}

TEST_F(ParameterClientTest, AStepIsNotLateIfTheServersCannotBeAsked) {
  job_.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  RenewReply reply;
  reply.set_min_clock(9);
  for (const auto& server : servers_) server->SetRenewReply(reply);
  ASSERT_TRUE(client->IsTooLate(5));
  stop_.Stop("the user has had enough");
  EXPECT_FALSE(client->IsTooLate(5));
}

TEST_F(ParameterClientTest, PushesCarryTheJobProgress) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_,
                        /*check_finite=*/false, /*progress=*/1u << 31);
  push->AllReady();
  ASSERT_TRUE(push->Finish().ok());
  for (const auto& server : servers_) {
    const std::vector<FakeParameterServer::SeenPush> pushes = server->pushes();
    ASSERT_THAT(pushes, SizeIs(1));
    for (const PushFrame& frame : pushes[0].frames) EXPECT_EQ(frame.progress(), 1u << 31);
  }
}

TEST_F(ParameterClientTest, PullWritesEachBlock) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto pull = client->Pull(/*clock=*/6, /*read_only=*/false, absl::MakeSpan(values_));
  ASSERT_TRUE(pull.ok()) << pull.status();
  EXPECT_THAT(values_, ::testing::ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3));
  EXPECT_EQ(pull->min_clock, 7);                   // the lower one of both servers
  EXPECT_EQ(pull->parked, absl::Milliseconds(2));  // the longer one of both servers
  EXPECT_EQ(servers_[0]->pulls()[0].clock(), 6);
  EXPECT_EQ(servers_[0]->pulls()[0].server_incarnation(), 1000);
}

TEST_F(ParameterClientTest, PullReportsEachBlock) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  std::vector<BlockId> told;
  const auto pull = client->Pull(/*clock=*/6, /*read_only=*/false, absl::MakeSpan(values_),
                                 /*held=*/nullptr, [&](BlockId block) {
                                   told.push_back(block);
                                   const BlockRange& range = block_map_.blocks()[block];
                                   EXPECT_EQ(values_[range.offset], static_cast<float>(block));
                                 });
  ASSERT_TRUE(pull.ok()) << pull.status();
  EXPECT_THAT(told, UnorderedElementsAre(0, 1, 2, 3));
}

TEST_F(ParameterClientTest, PullReportsUnchangedBlocksWithoutWriting) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  CachedVersions held;
  ASSERT_TRUE(client->Pull(0, /*read_only=*/false, absl::MakeSpan(values_), &held).ok());
  values_.assign(values_.size(), 99.0f);
  servers_[0]->SkipUnchanged();
  std::vector<BlockId> told;
  const auto pull = client->Pull(0, /*read_only=*/false, absl::MakeSpan(values_), &held,
                                 [&](BlockId block) { told.push_back(block); });
  ASSERT_TRUE(pull.ok()) << pull.status();
  EXPECT_THAT(told, UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values_, ElementsAre(99, 99, 99, 99, 1, 1, 1, 1, 99, 99, 3, 3));
}

TEST_F(ParameterClientTest, ARepeatedPullReportsBlocksAgain) {
  // Block 1 arrives before the first call fails, and again in the retry. It is reported both times,
  // because the caller may have overwritten it.
  servers_[1]->AddPullFault({grpc::UNAVAILABLE, 1});
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  std::vector<BlockId> told;
  const auto on_block = [&](BlockId block) {
    told.push_back(block);
    float& first = values_[block_map_.blocks()[block].offset];
    EXPECT_EQ(first, static_cast<float>(block));
    first = 99;
  };
  const auto pull = client->Pull(0, /*read_only=*/false, absl::MakeSpan(values_),
                                 /*held=*/nullptr, on_block);
  ASSERT_TRUE(pull.ok()) << pull.status();
  EXPECT_THAT(told, UnorderedElementsAre(0, 1, 1, 2, 3));
}

TEST_F(ParameterClientTest, PushSendsTheVersionsOfThePull) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  ASSERT_TRUE(client->Pull(0, false, absl::MakeSpan(values_)).ok());
  const auto push = Push(*client, 1);
  ASSERT_TRUE(push.ok()) << push.status();
  EXPECT_EQ(push->verdicts.accepted(), 4);
  EXPECT_EQ(push->verdicts.rejected(), 0);
  const auto pushes = servers_[1]->pushes();
  ASSERT_THAT(pushes, SizeIs(1));
  ASSERT_THAT(pushes[0].frames, SizeIs(2));
  const PushFrame& trained = pushes[0].frames[0];
  EXPECT_EQ(trained.block(), 1);
  EXPECT_EQ(trained.step(), 1);
  EXPECT_EQ(trained.slot(), 3);
  EXPECT_EQ(trained.incarnation(), 5);
  EXPECT_EQ(trained.base_version(), 101);
  EXPECT_EQ(trained.server_incarnation(), 1001);
  EXPECT_EQ(trained.weight(), 32);
  EXPECT_EQ(trained.block_count(), 2);
  EXPECT_THAT(Payload(trained), ::testing::ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(Payload(pushes[0].frames[1]), ::testing::ElementsAre(0.25f, 0.75f));
}

TEST_F(ParameterClientTest, SendsBlocksInTheOrderTheyBecomeReady) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto push = client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_,
                                      values_, /*check_finite=*/false);
  for (const BlockId block : {3, 2, 1}) push->BlockReady(block);
  push->AllReady();
  const auto result = push->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->verdicts.accepted(), 4);
  const auto blocks_of = [&](int server) {
    std::vector<BlockId> blocks;
    const auto pushes = servers_[server]->pushes();
    for (const PushFrame& frame : pushes[0].frames) blocks.push_back(frame.block());
    return blocks;
  };
  EXPECT_THAT(blocks_of(0), ::testing::ElementsAre(2, 0));
  EXPECT_THAT(blocks_of(1), ::testing::ElementsAre(3, 1));
}

TEST_F(ParameterClientTest, APushListsTheAbsentElements) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_, true);
  // Block 0 is absent completely, and the first half of block 1.
  push->AllReady(CallLoop::Urgency::kNow, {{0, 6}});
  const auto result = push->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->verdicts.accepted(), 4);
  const PushFrame whole = servers_[0]->pushes()[0].frames[0];
  EXPECT_EQ(whole.block(), 0);
  EXPECT_EQ(whole.absent_runs(), 1);
  EXPECT_EQ(whole.payload(), std::string("\0\0\0\0\4\0\0\0", 8)) << "the table and no element";
  const PushFrame part = servers_[1]->pushes()[0].frames[0];
  EXPECT_EQ(part.block(), 1);
  EXPECT_EQ(part.absent_runs(), 1);
  EXPECT_EQ(part.payload().substr(0, 8), std::string("\0\0\0\0\2\0\0\0", 8));
  EXPECT_EQ(part.payload().size(), 8 + 4 * sizeof(float));
  EXPECT_EQ(servers_[0]->pushes()[0].frames[1].absent_runs(), 0);
}

TEST_F(ParameterClientTest, SkipsAStepWithOnlyAbsentAndNonfiniteBlocks) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  std::fill(gradients_.begin() + 4, gradients_.end(), std::numeric_limits<float>::quiet_NaN());
  std::fill(averaged_.begin(), averaged_.end(), std::numeric_limits<float>::quiet_NaN());
  const auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_, true);
  push->AllReady(CallLoop::Urgency::kNow, {{0, 4}});
  const auto result = push->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->skipped);
  EXPECT_THAT(servers_[0]->pushes(), SizeIs(0));
}

TEST_F(ParameterClientTest, SendsAReadyBlockBeforeTheOthersAreReady) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  // The server ends the call after the first frame, so this frame arrived before the other one was
  // ready.
  servers_[1]->AddPushFault({grpc::FAILED_PRECONDITION, 1, "seen enough"});
  const auto push = client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_,
                                      values_, /*check_finite=*/true);
  push->BlockReady(3);
  const auto result = push->Finish();
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  EXPECT_THAT(servers_[0]->pushes(), SizeIs(0)) << "no block of this server was ready";
}

TEST_F(ParameterClientTest, APushContinuesWhileAPullWaits) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  servers_[0]->HoldPulls(true);
  const auto pull = client->BeginPull(1, PullKind::kAhead, absl::MakeSpan(values_));
  const auto push = Push(*client, 1);
  EXPECT_TRUE(push.ok()) << push.status();
  servers_[0]->HoldPulls(false);
  const auto pulled = pull->Finish();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_THAT(values_, ::testing::ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3));
  // The client began the first push before the pull ended, so its base version is 0. The second
  // push has the version of the pull.
  ASSERT_TRUE(Push(*client, 2).ok());
  EXPECT_EQ(servers_[1]->pushes()[0].frames[0].base_version(), 0);
  EXPECT_EQ(servers_[1]->pushes()[1].frames[0].base_version(), 101);
  EXPECT_TRUE(servers_[1]->pulls()[0].ahead());
}

TEST_F(ParameterClientTest, CallsRunOnTheGivenLoop) {
  loop_ = std::make_unique<CallLoop>(CallLoop::Options{&clock_, &stop_});
  const auto client = MakeClient();
  absl::Notification greeted, looked;
  bool went_past_the_loop = false;
  // While this runs the loop cannot do other work, on any thread.
  loop_->Post([&] {
    went_past_the_loop = greeted.WaitForNotificationWithTimeout(absl::Milliseconds(100));
    looked.Notify();
  });
  const auto start = client->Hello();
  greeted.Notify();
  looked.WaitForNotification();
  EXPECT_TRUE(start.ok()) << start.status();
  EXPECT_FALSE(went_past_the_loop);
}

TEST_F(ParameterClientTest, CallsContinueAfterAnotherClientOfTheLoopIsGone) {
  loop_ = std::make_unique<CallLoop>(CallLoop::Options{&clock_, &stop_});
  const auto client = MakeClient();
  slot_ = 4;
  auto other = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  ASSERT_TRUE(other->Hello().ok());
  servers_[0]->HoldPulls(true);
  const auto pull = client->BeginPull(1, PullKind::kAhead, absl::MakeSpan(values_));
  const auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_, false);
  push->BlockReady(0);
  const auto pushed_by_other = Push(*other, 1);
  ASSERT_TRUE(pushed_by_other.ok()) << pushed_by_other.status();
  EXPECT_EQ(servers_[1]->pushes()[0].frames[0].slot(), 4);
  other.reset();
  servers_[0]->HoldPulls(false);
  push->AllReady(CallLoop::Urgency::kSoon);
  const auto pushed = push->Finish();
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(servers_[1]->pushes()[1].frames[0].slot(), 3);
  ASSERT_TRUE(pull->Finish().ok());
  EXPECT_THAT(values_, ::testing::ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3));
}

// For AddressSanitizer: an abandoned push leaves work in the loop, which must not access the
// client's blocks.
TEST_F(ParameterClientTest, WorkOfAFailedPushOutlivesTheClient) {
  loop_ = std::make_unique<CallLoop>(CallLoop::Options{&clock_, &stop_});
  ManualClock clock;
  client_clock_ = &clock;
  auto client = MakeClient();
  auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_, false);
  stop_.Stop("the user has had enough");
  const auto advance = [this] {
    absl::Notification advanced;
    // Posted work runs before the rounds advance, so the second post runs after that.
    loop_->Post([] {});
    loop_->Post([&] { loop_->Post([&] { advanced.Notify(); }); });
    advanced.WaitForNotification();
  };
  advance();
  clock.Advance(absl::Minutes(1));
  advance();
  // The push has failed. The next function blocks the loop.
  absl::Notification began, gone;
  loop_->Post([&] {
    began.Notify();
    gone.WaitForNotification();
  });
  began.WaitForNotification();
  push->AllReady();
  EXPECT_TRUE(absl::IsCancelled(push->Finish().status()));
  push.reset();
  client.reset();
  gone.Notify();
  // Now the loop runs the remaining work.
  advance();
  loop_.reset();
}

TEST_F(ParameterClientTest, WaitingForADelayedPullStartsItAtOnce) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const absl::Duration later = clock_.Now() + absl::Hours(1);
  {
    const auto dropped =
        client->BeginPull(1, PullKind::kAhead, absl::MakeSpan(values_), nullptr, later);
  }
  const auto pull = client->BeginPull(1, PullKind::kAhead, absl::MakeSpan(values_), nullptr, later);
  ASSERT_TRUE(Push(*client, 1).ok()) << "so the pull could have started";
  EXPECT_THAT(servers_[0]->pulls(), SizeIs(0));
  const auto pulled = pull->Finish();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_THAT(servers_[0]->pulls(), SizeIs(1));
  EXPECT_LT(pulled->moving, absl::Minutes(1)) << "the time before it began does not count";
}

TEST_F(ParameterClientTest, ADelayedPullStartsAfterTheDelay) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto pull = client->BeginPull(1, PullKind::kAhead, absl::MakeSpan(values_), nullptr,
                                      clock_.Now() + absl::Milliseconds(20));
  EXPECT_TRUE(Eventually([&] { return !servers_[1]->pulls().empty(); }));
  ASSERT_TRUE(pull->Finish().ok());
}

TEST_F(ParameterClientTest, AnAbandonedPullKeepsTheClientUsable) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  servers_[0]->HoldPulls(true);
  { const auto pull = client->BeginPull(1, PullKind::kAhead, absl::MakeSpan(values_)); }
  servers_[0]->HoldPulls(false);
  EXPECT_TRUE(client->Pull(1, false, absl::MakeSpan(values_)).ok());
}

TEST_F(ParameterClientTest, AnAbandonedPushKeepsTheClientUsable) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  {
    const auto push = client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_,
                                        values_, /*check_finite=*/true);
    push->BlockReady(3);
  }
  EXPECT_TRUE(Push(*client, 2).ok());
}

TEST_F(ParameterClientTest, WithholdsANonfiniteBlock) {
  gradients_[9] = std::numeric_limits<float>::infinity();  // block 2
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_,
                        /*check_finite=*/true);
  push->BlockReady(2);
  push->BlockReady(1);
  push->AllReady();
  const auto result = push->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->skipped);
  const auto pushes = servers_[0]->pushes();
  ASSERT_THAT(pushes[0].frames, SizeIs(2));
  EXPECT_EQ(pushes[0].frames[0].block(), 2);
  EXPECT_TRUE(pushes[0].frames[0].withheld());
  EXPECT_EQ(pushes[0].frames[0].payload(), "");
  EXPECT_EQ(pushes[0].frames[1].block(), 0);
  EXPECT_FALSE(pushes[0].frames[1].withheld());
}

TEST_F(ParameterClientTest, WithholdsTheBlocksThatTheCallersCheckRejects) {
  averaged_[1] = std::numeric_limits<float>::infinity();  // block 3; is_finite() covers 0 to 2
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto push = client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_,
                                      values_, /*check_finite=*/true,
                                      /*progress=*/0, /*is_finite=*/[](BlockId block) {
                                        EXPECT_LT(block, 3u);
                                        return block != 2;
                                      });
  push->AllReady();
  const auto result = push->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->skipped);
  std::vector<BlockId> withheld;
  for (const auto& server : servers_) {
    for (const auto& pushed : server->pushes()) {
      for (const PushFrame& frame : pushed.frames) {
        if (frame.withheld()) withheld.push_back(frame.block());
      }
    }
  }
  EXPECT_THAT(withheld, ::testing::UnorderedElementsAre(2, 3));
}

TEST_F(ParameterClientTest, DoesNotSendAPushWithoutFiniteBlocks) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fill(gradients_.begin(), gradients_.end(), nan);
  averaged_[1] = nan;
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const auto push =
      client->BeginPush(1, /*weight=*/32, absl::MakeSpan(gradients_), averaged_, values_,
                        /*check_finite=*/true);
  push->BlockReady(2);
  push->AllReady();
  const auto result = push->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->skipped);
  EXPECT_THAT(servers_[0]->pushes(), SizeIs(0));
  EXPECT_THAT(servers_[1]->pushes(), SizeIs(0));
}

// g is the gradient, v the momentum, and w the weight decay, which is half of the value. For a
// push, the client first sets v = 0.5 v + g + w, and then sends g + w + 0.5 v.
class WorkerMomentumClientTest : public ParameterClientTest {
 protected:
  WorkerMomentumClientTest() {
    SgdSpec& sgd = *job_.mutable_optimizer()->mutable_sgd();
    sgd.set_momentum(0.5);
    sgd.set_momentum_at(SgdSpec::WORKER);
    job_.mutable_optimizer()->set_weight_decay(0.5);
    values_ = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 9, 9};
  }

  PushResult Step(ParameterClient& client, int step, float gradient, ElementRuns absent = {}) {
    std::fill(gradients_.begin(), gradients_.end(), gradient);
    for (const ElementRun& run : absent) {
      std::fill(gradients_.begin() + run.begin, gradients_.begin() + run.end, 0.0f);
    }
    return Finish(client, step, absent);
  }

  PushResult Finish(ParameterClient& client, int step, ElementRuns absent = {}) {
    const auto push = client.BeginPush(step, /*weight=*/1, absl::MakeSpan(gradients_), averaged_,
                                       values_, /*check_finite=*/true);
    push->AllReady(CallLoop::Urgency::kSoon, std::move(absent));
    const auto result = push->Finish();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(PushResult());
  }

  std::vector<float> Pushed(int server, size_t push, size_t frame) {
    return Payload(servers_[server]->pushes()[push].frames[frame]);
  }
};

TEST_F(WorkerMomentumClientTest, PushesIncludeTheSlotsMomentum) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  Step(*client, 1, 3);
  Step(*client, 2, 1);
  EXPECT_THAT(Pushed(0, 0, 0), ElementsAre(6, 6, 6, 6));  // v = 4
  EXPECT_THAT(Pushed(0, 1, 0), ElementsAre(4, 4, 4, 4));  // v = 4
  EXPECT_THAT(Pushed(1, 1, 1), ElementsAre(0.25f, 0.75f)) << "averaged values are sent unchanged";
}

TEST_F(WorkerMomentumClientTest, ARepeatedPushAddsMomentumOnce) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  for (const int frames : {0, 1, 2}) servers_[0]->AddPushFault({grpc::UNAVAILABLE, frames});
  Step(*client, 1, 3);
  Step(*client, 2, 1);
  const auto pushes = servers_[0]->pushes();
  ASSERT_THAT(pushes, SizeIs(5));
  for (size_t i = 0; i < 4; ++i) {
    for (const PushFrame& frame : pushes[i].frames) EXPECT_EQ(Payload(frame)[0], 6);
  }
  EXPECT_THAT(Pushed(0, 4, 0), ElementsAre(4, 4, 4, 4));
}

TEST_F(WorkerMomentumClientTest, AbsentAndWithheldElementsKeepTheirMomentum) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  Step(*client, 1, 3);                    // v = 4
  Step(*client, 2, 7, {{0, 4}, {5, 7}});  // absent: block 0, the middle of block 1; else v = 10
  EXPECT_EQ(servers_[0]->pushes()[1].frames[0].payload().size(), 8u) << "a table and no element";
  std::fill(gradients_.begin(), gradients_.end(), 1.0f);
  gradients_[9] = std::numeric_limits<float>::infinity();  // block 2
  Finish(*client, 3);
  EXPECT_TRUE(servers_[0]->pushes()[2].frames[1].withheld());
  EXPECT_THAT(Pushed(0, 2, 0), ElementsAre(4, 4, 4, 4)) << "v is 4 again";
  EXPECT_THAT(Pushed(1, 2, 0), ElementsAre(5.5f, 4, 4, 5.5f)) << "v is 7 at the ends";
  Step(*client, 4, 1);
  EXPECT_THAT(Pushed(0, 3, 1), ElementsAre(5.5f, 5.5f)) << "v is 7: the step before left it at 10";
}

TEST_F(WorkerMomentumClientTest, ASkippedStepKeepsTheMomentum) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  Step(*client, 1, 3);
  averaged_[0] = std::numeric_limits<float>::quiet_NaN();
  std::fill(gradients_.begin(), gradients_.end(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(Finish(*client, 2).skipped);
  averaged_[0] = 0;
  Step(*client, 2, 1);
  EXPECT_THAT(Pushed(0, 1, 0), ElementsAre(4, 4, 4, 4));
}

TEST_F(WorkerMomentumClientTest, ASuccessorOfTheSlotStartsWithoutMomentumAndLogsIt) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  EXPECT_THAT(logged_, SizeIs(0));
  Step(*client, 1, 3);
  HelloReply reply;
  reply.set_server_incarnation(1000);
  reply.set_last_step(1);
  servers_[0]->SetHelloReply(reply);
  const auto successor = MakeClient();
  ASSERT_TRUE(successor->Hello().ok());
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("slot 3 pushed 1 steps in an earlier process")));
  ASSERT_TRUE(successor->Hello().ok());
  EXPECT_THAT(logged_, SizeIs(1)) << "the same process again";
  Step(*successor, 2, 3);
  EXPECT_THAT(Pushed(0, 1, 0), ElementsAre(6, 6, 6, 6));
}

TEST_F(ParameterClientTest, InitialValuesAreStepZero) {
  for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  ASSERT_TRUE(client->Initialize(values_).ok());
  const auto pushes = servers_[1]->pushes();
  ASSERT_THAT(pushes, SizeIs(1));
  EXPECT_EQ(pushes[0].frames[0].step(), 0);
  EXPECT_THAT(Payload(pushes[0].frames[1]), ::testing::ElementsAre(10, 11));
}

// The client does not know whether the server applied an interrupted push. So the retry must have
// the same step and the same bytes.
TEST_F(ParameterClientTest, ResendsAnInterruptedPushUnchanged) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  ASSERT_TRUE(client->Pull(0, false, absl::MakeSpan(values_)).ok());
  for (const int frames : {0, 1, 2}) servers_[0]->AddPushFault({grpc::UNAVAILABLE, frames});
  servers_[0]->AddPushFault({grpc::DEADLINE_EXCEEDED, 2});
  const auto push = Push(*client, 1);
  ASSERT_TRUE(push.ok()) << push.status();

  const auto pushes = servers_[0]->pushes();
  ASSERT_THAT(pushes, SizeIs(5));
  const auto& whole = pushes.back().frames;
  ASSERT_THAT(whole, SizeIs(2));
  for (const auto& seen : pushes) {
    for (size_t i = 0; i < seen.frames.size(); ++i) {
      EXPECT_EQ(seen.frames[i].SerializeAsString(), whole[i].SerializeAsString());
    }
  }
  EXPECT_THAT(servers_[1]->pushes(), SizeIs(1)) << "the other server had already answered";
}

TEST_F(ParameterClientTest, RepeatsAnInterruptedPull) {
  servers_[1]->AddPullFault({grpc::UNAVAILABLE, 1});
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  ASSERT_TRUE(client->Pull(0, false, absl::MakeSpan(values_)).ok());
  EXPECT_THAT(servers_[1]->pulls(), SizeIs(2));
  EXPECT_THAT(servers_[0]->pulls(), SizeIs(1));
  EXPECT_THAT(values_, ::testing::ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3));
}

TEST_F(ParameterClientTest, GreetsARestartedServerAgainAndKeepsTheClock) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  HelloReply later;
  later.set_server_incarnation(2000);
  later.set_initialized(true);
  later.set_min_clock(8);
  servers_[0]->SetHelloReply(later);
  servers_[0]->AddPullFault({grpc::ABORTED});
  ASSERT_TRUE(client->Pull(1, false, absl::MakeSpan(values_)).ok());
  EXPECT_THAT(servers_[0]->hellos(), SizeIs(2));
  EXPECT_EQ(servers_[0]->pulls()[1].server_incarnation(), 2000);
  // Server 0 restarted with a higher clock, but the client keeps its clock. Server 1 would park a
  // pull with a clock above the steps pushed there.
  EXPECT_EQ(servers_[0]->pulls()[1].clock(), 1);
  ASSERT_TRUE(client->Pull(2, false, absl::MakeSpan(values_)).ok());
  EXPECT_EQ(servers_[1]->pulls()[1].clock(), 2);
}

TEST_F(ParameterClientTest, CountsUpdatesLostByARestartedServerOnce) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  for (Step step = 1; step <= 5; ++step) ASSERT_TRUE(Push(*client, step).ok());
  HelloReply back;
  back.set_server_incarnation(2000);
  back.set_initialized(true);
  back.mutable_restored()->set_checkpoint(9);
  back.mutable_restored()->add_block_step(3);
  back.mutable_restored()->add_block_step(4);
  servers_[0]->SetHelloReply(back);
  servers_[0]->AddPushFault({grpc::ABORTED});
  const auto push = Push(*client, 6);
  ASSERT_TRUE(push.ok()) << push.status();
  const RollbackAccounting::Lost lost = client->TakeRolledBack();
  EXPECT_EQ(lost.blocks, 3u) << "steps 4 and 5 of one block, 5 of the other";
  EXPECT_EQ(lost.pushes, 2u);
  ASSERT_EQ(logged_.size(), 1u);
  EXPECT_THAT(logged_[0], HasSubstr("back from checkpoint 9; slot 3 lost the pushes of 3 blocks"));
  // The interrupted step was sent again, with the same number, to the restarted server.
  EXPECT_EQ(servers_[0]->pushes().back().frames[0].step(), 6);
  EXPECT_EQ(servers_[0]->pushes().back().frames[0].server_incarnation(), 2000);
  servers_[0]->AddPullFault({grpc::ABORTED});
  ASSERT_TRUE(client->Pull(6, false, absl::MakeSpan(values_)).ok());
  EXPECT_EQ(client->TakeRolledBack().blocks, 0u) << "the same server incarnation again";
}

TEST_F(ParameterClientTest, RejectsARestoreReportForOtherBlocks) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  HelloReply back;
  back.set_server_incarnation(2000);
  back.set_initialized(true);
  back.mutable_restored()->add_block_step(3);
  servers_[0]->SetHelloReply(back);
  servers_[0]->AddPullFault({grpc::ABORTED});
  const auto pull = client->Pull(1, false, absl::MakeSpan(values_));
  EXPECT_EQ(pull.status().code(), absl::StatusCode::kInternal) << pull.status();
}

TEST_F(ParameterClientTest, AReadOnlyPullGreetsAgainOnlyAfterAnEarlierHello) {
  const auto unauthenticated = MakeClient();
  servers_[0]->AddPullFault({grpc::ABORTED});
  EXPECT_TRUE(absl::IsAborted(unauthenticated->Pull(0, true, absl::MakeSpan(values_)).status()));
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  servers_[0]->AddPullFault({grpc::ABORTED});
  EXPECT_TRUE(client->Pull(0, /*read_only=*/true, absl::MakeSpan(values_)).ok());
  EXPECT_THAT(servers_[0]->hellos(), SizeIs(2));
}

TEST_F(ParameterClientTest, GivesUpOnAServerThatAbortsEveryPull) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  for (int i = 0; i < 4; ++i) servers_[0]->AddPullFault({grpc::ABORTED});
  const auto pull = client->Pull(1, false, absl::MakeSpan(values_));
  EXPECT_TRUE(absl::IsAborted(pull.status())) << pull.status();
}

// Servers that do not know the connection answer ABORTED.
TEST_F(ParameterClientTest, RepeatsHelloAfterEachBrokenConnection) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  constexpr int kBreaks = 4;
  for (int i = 0; i < kBreaks; ++i) {
    servers_[0]->AddPushFault({grpc::ABORTED});
    servers_[0]->AddPushFault({grpc::UNAVAILABLE});
  }
  const auto push = Push(*client, 1);
  EXPECT_TRUE(push.ok()) << push.status();
  EXPECT_THAT(servers_[0]->hellos(), SizeIs(1 + kBreaks));
}

TEST_F(ParameterClientTest, FailsIfAServerLostTheModel) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  HelloReply empty;
  empty.set_server_incarnation(2000);
  servers_[0]->SetHelloReply(empty);
  servers_[0]->AddPullFault({grpc::ABORTED});
  const auto pull = client->Pull(1, false, absl::MakeSpan(values_));
  EXPECT_TRUE(absl::IsFailedPrecondition(pull.status())) << pull.status();
  EXPECT_THAT(std::string(pull.status().message()), HasSubstr("lost the model"));
}

TEST_F(ParameterClientTest, RepeatsInitializeIfAServerRestartsMeanwhile) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());  // the reply announces a model that another slot pushed
  HelloReply empty;
  empty.set_server_incarnation(2000);
  servers_[0]->SetHelloReply(empty);
  servers_[0]->AddPushFault({grpc::ABORTED});
  const absl::Status initialized = client->Initialize(values_);
  EXPECT_TRUE(initialized.ok()) << initialized;
}

TEST_F(ParameterClientTest, HelloErrorNamesTheServerThatRefusesTheJob) {
  servers_[1]->AddHelloFault({grpc::FAILED_PRECONDITION, 0, "the models differ"});
  const auto hello = MakeClient()->Hello();
  EXPECT_TRUE(absl::IsFailedPrecondition(hello.status())) << hello.status();
  EXPECT_EQ(hello.status().message(), "server 1 in this process: the models differ");
}

TEST_F(ParameterClientTest, RejectsAFrameOfTheWrongLength) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  servers_[1]->CutNextFrame(1);
  const auto pull = client->Pull(0, false, absl::MakeSpan(values_));
  EXPECT_TRUE(absl::IsInvalidArgument(pull.status())) << pull.status();
  EXPECT_THAT(
      std::string(pull.status().message()),
      AllOf(HasSubstr("server 1"), HasSubstr("block 1: 4 elements in FLOAT32 take 16 bytes"),
            HasSubstr("has 12")));
}

TEST_F(ParameterClientTest, AnEncodedRetrySendsTheSameBytes) {
  job_.mutable_wire()->mutable_push()->set_kind(EncodingSpec::TOP_K);
  job_.mutable_wire()->mutable_push()->set_fraction(0.5);
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  // Initial values are sent unencoded.
  ASSERT_TRUE(client->Initialize(values_).ok());
  servers_[0]->AddPushFault({grpc::StatusCode::UNAVAILABLE, /*after_frames=*/2});
  ASSERT_TRUE(Push(*client, 1).ok());
  servers_[0]->SetVerdict(REJECTED_STALE, 13);
  ASSERT_TRUE(Push(*client, 2).ok());
  servers_[0]->SetVerdict(ACCEPTED, 0);
  ASSERT_TRUE(Push(*client, 3).ok());

  const auto pushes = servers_[0]->pushes();
  ASSERT_THAT(pushes, SizeIs(5));
  EXPECT_EQ(pushes[0].frames[0].encoding(), EncodingSpec::FLOAT32);
  EXPECT_TRUE(pushes[1].failed);
  // The gradient of block 0 is 1, 2, 3, 4. The two largest are sent as pairs of index and value.
  const auto entries = [](const PushFrame& frame) {
    EXPECT_EQ(frame.encoding(), EncodingSpec::TOP_K);
    std::vector<std::pair<uint32_t, float>> pairs(frame.payload().size() / 8);
    for (size_t i = 0; i < pairs.size(); ++i) {
      std::memcpy(&pairs[i].first, frame.payload().data() + 8 * i, 4);
      std::memcpy(&pairs[i].second, frame.payload().data() + 8 * i + 4, 4);
    }
    return pairs;
  };
  using Pairs = std::vector<std::pair<uint32_t, float>>;
  EXPECT_EQ(entries(pushes[1].frames[0]), (Pairs{{2, 3.0f}, {3, 4.0f}}));
  EXPECT_EQ(pushes[2].frames[0].payload(), pushes[1].frames[0].payload());
  // The residuals of elements 0 and 1 are added to the gradient, which gives 2, 4, 3, 4. Of equal
  // values, those with lower indices are sent.
  EXPECT_EQ(entries(pushes[3].frames[0]), (Pairs{{1, 4.0f}, {3, 4.0f}}));
  // The push before was rejected, so its elements returned to the residual. With the gradient the
  // values are 3, 6, 6, 8.
  EXPECT_EQ(entries(pushes[4].frames[0]), (Pairs{{1, 6.0f}, {3, 8.0f}}));
}

TEST_F(ParameterClientTest, CountsRejectedBlocksWithoutAnError) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  servers_[1]->SetVerdict(REJECTED_STALE, 13);
  const auto push = Push(*client, 1);
  ASSERT_TRUE(push.ok()) << push.status();
  EXPECT_EQ(push->verdicts.accepted(), 2);
  EXPECT_EQ(push->verdicts.rejected(), 2);
  EXPECT_EQ(push->max_lag, 13);
}

TEST_F(ParameterClientTest, HelloFailsAfterTheTimeout) {
  for (int i = 0; i < 100; ++i) servers_[0]->AddHelloFault({grpc::UNAVAILABLE, 0, "not today"});
  const auto hello = MakeClient(/*patience=*/absl::Milliseconds(300))->Hello();
  EXPECT_TRUE(absl::IsUnavailable(hello.status())) << hello.status();
  EXPECT_THAT(std::string(hello.status().message()),
              AllOf(HasSubstr("server 0"), HasSubstr("300ms"), HasSubstr("not today")));
}

TEST_F(ParameterClientTest, AStopEndsTheWaitForAServer) {
  for (int i = 0; i < 1000; ++i) servers_[0]->AddHelloFault({});
  const auto client = MakeClient();
  std::thread stopper([&] { stop_.Stop("the user had enough"); });
  const auto hello = client->Hello();
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(hello.status())) << hello.status();
  EXPECT_EQ(hello.status().message(), "the user had enough");
}

TEST_F(ParameterClientTest, LeavingStillWorksAfterAStop) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  stop_.Stop("the user had enough");
  EXPECT_TRUE(client->Leave().ok());
  EXPECT_EQ(servers_[0]->leaves(), 1);
  EXPECT_EQ(servers_[1]->leaves(), 1);
}

TEST_F(ParameterClientTest, LeaveSucceedsIfAServerForgotTheSlot) {
  servers_[0]->AddLeaveFault({grpc::ABORTED});
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  EXPECT_TRUE(client->Leave().ok());
  EXPECT_EQ(servers_[1]->leaves(), 1);
}

TEST_F(ParameterClientTest, RenewsLeasesOnlyBetweenHelloAndLeave) {
  const auto client = MakeClient();
  const auto renew = [&] {
    return client->leases().Renew(absl::Seconds(5), absl::Seconds(7), absl::InfiniteDuration());
  };
  renew();
  EXPECT_EQ(servers_[0]->renewals(), 0);
  ASSERT_TRUE(client->Hello().ok());
  const int before = servers_[0]->renewals();
  RenewReply reply;
  reply.mutable_waited_for()->set_slot(6);
  reply.mutable_waited_for()->set_seconds(11);
  servers_[0]->SetRenewReply(reply);
  reply.mutable_waited_for()->set_slot(8);
  reply.mutable_waited_for()->set_seconds(12);
  servers_[1]->SetRenewReply(reply);
  const Renewals renewals = renew();
  EXPECT_EQ(servers_[0]->renewals(), before + 1);
  EXPECT_THAT(renewals.contacts, SizeIs(2));
  ASSERT_TRUE(renewals.blocking_slot.has_value());
  EXPECT_EQ(renewals.blocking_slot->slot, 8);
  EXPECT_EQ(renewals.blocking_slot->time, absl::Seconds(12));
  ASSERT_TRUE(client->Leave().ok());
  EXPECT_FALSE(renew().blocking_slot.has_value());
  EXPECT_EQ(servers_[0]->renewals(), before + 1);
}

TEST_F(ParameterClientTest, ReportsAServerThatAnswersNoRenewal) {
  ManualClock clock;
  client_clock_ = &clock;
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  clock.Advance(absl::Seconds(10));
  servers_[0]->AddRenewFault({grpc::ABORTED});
  servers_[1]->AddRenewFault({grpc::UNAVAILABLE});
  const auto renew = [&] {
    return client->leases().Renew(absl::Seconds(5), absl::ZeroDuration(), absl::Seconds(10));
  };
  const Renewals first = renew();
  EXPECT_FALSE(first.contacts.at(0).missed.has_value());
  EXPECT_EQ(first.contacts.at(0).last_reached, clock.Now());
  EXPECT_EQ(first.contacts.at(1).missed, clock.Now());
  EXPECT_EQ(first.contacts.at(1).answered, clock.Now() - absl::Seconds(10));
  clock.Advance(absl::Seconds(1));
  const Renewals second = renew();
  EXPECT_FALSE(second.contacts.at(1).missed.has_value()) << "both have answered";
  EXPECT_EQ(second.contacts.at(0).first_reached, clock.Now() - absl::Seconds(1));
  EXPECT_EQ(second.contacts.at(1).first_reached, clock.Now());
}

TEST_F(ParameterClientTest, ARenewalAsksARestartedServerToRestoreTheJob) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  servers_[1]->AddRenewFault({grpc::ABORTED});
  const auto renew = [&] {
    client->leases().Renew(absl::Seconds(5), absl::ZeroDuration(), absl::InfiniteDuration());
  };
  renew();
  EXPECT_THAT(servers_[0]->hellos(), SizeIs(1));
  ASSERT_THAT(servers_[1]->hellos(), SizeIs(2));
  const HelloRequest restore = servers_[1]->hellos().back();
  EXPECT_TRUE(restore.only_restores());
  EXPECT_TRUE(restore.continues()) << "the server must not start the job anew";
  EXPECT_EQ(restore.job_id(), 77);
  renew();
  EXPECT_THAT(servers_[1]->hellos(), SizeIs(2)) << "the server knows the slot";
}

TEST_F(ParameterClientTest, AfterSteppingAsideTheNextPullGreetsAgain) {
  const auto client = MakeClient();
  ASSERT_TRUE(client->Hello().ok());
  const int before = servers_[0]->renewals();
  client->leases().StepAside(absl::Seconds(5), /*silent=*/{1});
  EXPECT_EQ(servers_[0]->leaves(), 1);
  EXPECT_EQ(servers_[1]->leaves(), 0);
  client->leases().Renew(absl::Seconds(5), absl::ZeroDuration(), absl::InfiniteDuration());
  EXPECT_EQ(servers_[0]->renewals(), before) << "no lease to renew";
  EXPECT_EQ(servers_[1]->renewals(), before + 1) << "is it still silent";
  servers_[0]->AddPullFault({grpc::ABORTED});
  EXPECT_TRUE(client->Pull(1, false, absl::MakeSpan(values_)).ok());
  EXPECT_THAT(servers_[0]->hellos(), SizeIs(2));
  client->leases().Renew(absl::Seconds(5), absl::ZeroDuration(), absl::InfiniteDuration());
  EXPECT_EQ(servers_[0]->renewals(), before + 1);
}

TEST_F(ParameterClientTest, WaitsForARestoringServer) {
  HelloReply busy;
  busy.set_server_incarnation(11);
  busy.mutable_restoring()->set_what("reads checkpoint 7");
  busy.mutable_restoring()->set_part(0.4);
  servers_[0]->SetHelloReply(busy);
  const auto client = MakeClient(/*patience=*/absl::ZeroDuration());
  std::thread restored([&] {
    Eventually([&] { return servers_[0]->hellos().size() >= 3; });
    HelloReply ready;
    ready.set_server_incarnation(11);
    ready.set_min_clock(4);
    servers_[0]->SetHelloReply(ready);
  });
  const auto start = client->Hello();
  restored.join();
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(*start, 4);
}

TEST_F(ParameterClientTest, WaitsWhileAServerOfAnotherJobAnswers) {
  for (const grpc::StatusCode code :
       {grpc::FAILED_PRECONDITION, grpc::NOT_FOUND, grpc::PERMISSION_DENIED}) {
    const auto client = MakeClient();
    ASSERT_TRUE(client->Hello().ok());
    ASSERT_TRUE(client->Pull(0, false, absl::MakeSpan(values_)).ok());
    servers_[1]->AddPullFault({grpc::ABORTED});
    for (int i = 0; i < 3; ++i) servers_[1]->AddHelloFault({code});
    const auto pull = client->Pull(1, false, absl::MakeSpan(values_));
    EXPECT_TRUE(pull.ok()) << pull.status();
    EXPECT_TRUE(servers_[1]->hellos().back().continues());
  }
}

TEST_F(ParameterClientTest, AfterTheTimeoutTheErrorNamesTheForeignServer) {
  const auto client = MakeClient(/*patience=*/absl::Milliseconds(50));
  ASSERT_TRUE(client->Hello().ok());
  servers_[1]->AddPullFault({grpc::ABORTED});
  for (int i = 0; i < 1000; ++i) {
    servers_[1]->AddHelloFault(
        {grpc::FAILED_PRECONDITION, 0, "this server already works for job 'other'"});
  }
  const auto pull = client->Pull(1, false, absl::MakeSpan(values_));
  EXPECT_TRUE(absl::IsUnavailable(pull.status())) << pull.status();
  EXPECT_THAT(std::string(pull.status().message()), HasSubstr("already works for job 'other'"));
}

TEST_F(ParameterClientTest, FailsAtOnceIfTheFirstHelloFails) {
  servers_[1]->AddHelloFault({grpc::FAILED_PRECONDITION});
  EXPECT_TRUE(absl::IsFailedPrecondition(MakeClient()->Hello().status()));
}

}  // namespace
}  // namespace torchps
