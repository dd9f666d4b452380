// Tests a slot with several processes: each pushes some of a server's blocks in a separate stream.

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/server/job/hosted_job.h"

namespace torchps {
namespace {

// Two blocks and one slot shared by two processes.
class PartialPushesTest : public ::testing::Test {
 protected:
  void Begin(const std::string& job) {
    JobHarness::Options options;
    options.job = job;
    options.workers = 1;
    harness_ = std::make_unique<JobHarness>(options);
    ASSERT_EQ(harness_->blocks(), 2u);
    ASSERT_TRUE(harness_->Enter(0, 1).ok());
    ASSERT_TRUE(harness_->Enter(0, 1).ok()) << "the second process";
    ASSERT_TRUE(harness_->Initialize(0, 1, 0.0f).ok());
  }

  absl::Status Frame(Step step, BlockId block) {
    return harness_->Frame(0, 1, step, block, 1.0f, step - 1);
  }

  // Ends the stream of the process that pushed `blocks`.
  std::shared_ptr<absl::StatusOr<PushReply>> Finish(Step step, std::vector<BlockId> blocks) {
    auto answer = std::make_shared<absl::StatusOr<PushReply>>(absl::UnavailableError("none yet"));
    harness_->job().FinishPush(
        0, 1, step, [answer](const absl::StatusOr<PushReply>& reply) { *answer = reply; },
        std::move(blocks));
    return answer;
  }

  Step Clock() { return harness_->Status().slot(0).clock(); }

  std::unique_ptr<JobHarness> harness_;
};

TEST_F(PartialPushesTest, OnlyTheLastPartOfAPushRaisesTheClock) {
  Begin("");
  ASSERT_TRUE(Frame(1, 1).ok());
  const auto second = Finish(1, {1});
  ASSERT_TRUE(second->ok()) << second->status();
  ASSERT_EQ((*second)->block_size(), 1);
  EXPECT_EQ((*second)->block(0).block(), 1u);
  EXPECT_EQ((*second)->block(0).verdict(), ACCEPTED);
  EXPECT_EQ(Clock(), 0) << "the other process did not push yet";
  EXPECT_EQ(harness_->Status().slot(0).pushes(), 0u);

  ASSERT_TRUE(Frame(1, 0).ok());
  const auto first = Finish(1, {0});
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_EQ((*first)->block_size(), 1);
  EXPECT_EQ((*first)->block(0).block(), 0u);
  EXPECT_EQ((*first)->clock(), 1);
  EXPECT_EQ(Clock(), 1);
  EXPECT_EQ(harness_->Status().slot(0).pushes(), 1u);
  EXPECT_EQ(harness_->Status().verdicts().acknowledged(), 2u);
}

TEST_F(PartialPushesTest, ARepeatedPartIsADuplicate) {
  Begin("");
  for (int repeat = 0; repeat < 3; ++repeat) {
    ASSERT_TRUE(Frame(1, 1).ok());
    const auto answer = Finish(1, {1});
    ASSERT_TRUE(answer->ok()) << answer->status();
    EXPECT_EQ((*answer)->block(0).duplicate(), repeat > 0);
    EXPECT_EQ((*answer)->block(0).version(), 1);
  }
  EXPECT_EQ(harness_->Value(1), -1.0f);
  EXPECT_EQ(harness_->Value(0), 0.0f);
  EXPECT_EQ(Clock(), 0);
}

TEST_F(PartialPushesTest, RejectsAPartWithMissingBlocks) {
  Begin("");
  ASSERT_TRUE(Frame(1, 0).ok());
  EXPECT_EQ(Finish(1, {1})->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Finish(1, {0, 1})->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(harness_->Status().verdicts().acknowledged(), 0u);
  EXPECT_EQ(Clock(), 0);
}

TEST_F(PartialPushesTest, RejectsAWholePushWithMissingBlocks) {
  Begin("");
  ASSERT_TRUE(Frame(1, 0).ok());
  EXPECT_EQ(Finish(1, {})->status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PartialPushesTest, InSyncEachPartIsAnsweredWhenTheRoundEnds) {
  Begin("consistency { mode: SYNC }");
  ASSERT_TRUE(Frame(1, 0).ok());
  const auto first = Finish(1, {0});
  EXPECT_FALSE(first->ok()) << "the other block's round is open";
  ASSERT_TRUE(Frame(1, 1).ok());
  const auto second = Finish(1, {1});
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_TRUE(second->ok()) << second->status();
  EXPECT_EQ((*first)->block_size(), 1);
  EXPECT_EQ(Clock(), 1);
  EXPECT_EQ(harness_->Status().slot(0).pushes(), 1u) << "two parts are one push";
}

TEST_F(PartialPushesTest, APullWaitsForTheLastPart) {
  Begin("consistency { mode: ASYNC staleness_bound: 0 }");
  ASSERT_TRUE(harness_->Enter(1, 2).ok());
  ASSERT_TRUE(harness_->Push(1, 2, 1, 1.0f)->ok());
  ASSERT_TRUE(Frame(1, 0).ok());
  ASSERT_TRUE(Finish(1, {0})->ok());
  const auto pulling = harness_->Pull(1, 2, 1);
  EXPECT_FALSE(pulling->granted);
  ASSERT_TRUE(Frame(1, 1).ok());
  ASSERT_TRUE(Finish(1, {1})->ok());
  EXPECT_TRUE(pulling->granted);
}

TEST_F(PartialPushesTest, ASuccessorsPartDoesNotCompleteItsPredecessorsPush) {
  Begin("");
  ASSERT_TRUE(Frame(1, 0).ok());
  ASSERT_TRUE(Finish(1, {0})->ok());
  ASSERT_TRUE(harness_->Enter(0, 9).ok());
  ASSERT_TRUE(harness_->Frame(0, 9, 1, /*block=*/1, 1.0f, 0).ok());
  auto answer = std::make_shared<absl::StatusOr<PushReply>>(absl::UnavailableError("none yet"));
  harness_->job().FinishPush(
      0, 9, 1, [answer](const absl::StatusOr<PushReply>& reply) { *answer = reply; }, {1});
  ASSERT_TRUE(answer->ok()) << answer->status();
  EXPECT_EQ(Clock(), 0) << "block 0 has step 1 of another incarnation";
}

}  // namespace
}  // namespace torchps
