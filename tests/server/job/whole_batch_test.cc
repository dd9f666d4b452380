// Tests HostedJob with apply WHOLE_BATCH: when pushes are answered, how long they wait, and the
// status.

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/server/job/slot_clocks.h"

namespace torchps {
namespace {

class WholeBatchTest : public ::testing::Test {
 protected:
  // Starts a job with two blocks, three slots and a global batch of 12 samples.
  void SetUp() override {
    JobHarness::Options options;
    options.job =
        "training { batch_size: 12 global_batch: true } consistency { mode: ASYNC apply: "
        "WHOLE_BATCH }";
    options.workers = 3;
    harness_ = std::make_unique<JobHarness>(options);
    harness_->job().SetWake([this](absl::Duration delay) { wakes_.push_back(delay); });
    for (const SlotId slot : {0, 1, 2}) {
      ASSERT_TRUE(harness_->Enter(slot, /*incarnation=*/1).ok());
    }
    ASSERT_TRUE(harness_->Initialize(0, 1, 0.0f).ok());
  }

  // The answer to a push. Step() pulls, computes for the time `computes`, and pushes.
  using Answer = std::shared_ptr<absl::StatusOr<PushReply>>;
  Answer Step(SlotId slot, int step, absl::Duration computes, uint32_t samples = 4) {
    EXPECT_TRUE(harness_->Pull(slot, 1, step - 1)->granted) << "no pull waits";
    harness_->clock().Advance(computes);
    return harness_->Push(slot, 1, step, /*value=*/1.0f, /*base=*/-1, samples);
  }

  std::unique_ptr<JobHarness> harness_;
  std::vector<absl::Duration> wakes_;
};

TEST_F(WholeBatchTest, AnswersAPushWhenItsUpdateIsApplied) {
  const Answer first = Step(0, 1, absl::Seconds(1));
  const Answer second = Step(1, 1, absl::Seconds(1));
  EXPECT_FALSE(first->ok());
  EXPECT_FALSE(second->ok());
  EXPECT_EQ(harness_->Status().verdicts().acknowledged(), 0u);
  const Answer third = Step(2, 1, absl::Seconds(1));
  for (const Answer& answer : {first, second, third}) {
    ASSERT_TRUE(answer->ok()) << answer->status();
    EXPECT_EQ((*answer)->block(0).verdict(), ACCEPTED);
    EXPECT_EQ((*answer)->block(0).version(), 1);
  }
  EXPECT_EQ(harness_->Value(0), -1.0f);
  const ServerStatus status = harness_->Status();
  EXPECT_EQ(status.block_updates(), 2u);
  EXPECT_EQ(status.early_block_updates(), 0u);
  EXPECT_EQ(status.verdicts().acknowledged(), 6u);
  EXPECT_EQ(status.lag().max(), 0);
}

TEST_F(WholeBatchTest, WaitsForOtherSlotsOneUsualStepOfTheFirstPusher) {
  const Answer first = Step(0, 1, absl::Seconds(2));
  EXPECT_EQ(wakes_.back(), absl::Seconds(2));
  // With this push the batch is more than half full. The second slot would wait for longer than the
  // first.
  const Answer second = Step(1, 1, absl::Seconds(1), /*samples=*/3);
  harness_->clock().Advance(absl::Milliseconds(999));
  harness_->job().MakeDueUpdates();
  EXPECT_FALSE(first->ok());
  harness_->clock().Advance(absl::Milliseconds(1));
  harness_->job().MakeDueUpdates();
  ASSERT_TRUE(first->ok()) << first->status();
  ASSERT_TRUE(second->ok()) << second->status();
  EXPECT_FLOAT_EQ(harness_->Value(0), -7.0f / 12);
  const ServerStatus status = harness_->Status();
  EXPECT_EQ(status.block_updates(), 2u);
  EXPECT_EQ(status.early_block_updates(), 2u);
  EXPECT_DOUBLE_EQ(status.slot(0).longest_push_wait_seconds(), 2);
  EXPECT_DOUBLE_EQ(status.slot(0).usual_step_seconds(), 2);
  EXPECT_DOUBLE_EQ(status.slot(1).push_wait_seconds(), 1);
}

TEST_F(WholeBatchTest, RejectsAGradientThatIsTwoUpdatesOld) {
  for (int step = 1; step <= 2; ++step) {
    const Answer first = Step(0, step, absl::Seconds(1), /*samples=*/6);
    const Answer second = Step(1, step, absl::Seconds(1), /*samples=*/6);
    ASSERT_TRUE(first->ok() && second->ok());
  }
  const auto late = harness_->Push(2, 1, 1, 100.0f, /*base=*/0, /*weight=*/4);
  ASSERT_TRUE(late->ok()) << late->status();
  EXPECT_EQ((*late)->block(0).verdict(), REJECTED_STALE);
  EXPECT_EQ((*late)->block(0).lag(), 2);
  EXPECT_EQ(harness_->Value(0), -2.0f);
  EXPECT_EQ(harness_->Status().verdicts().rejected(), 2u);
}

TEST_F(WholeBatchTest, AnswersWaitingPushesWhenTheMissingSlotLeaves) {
  const Answer first = Step(0, 1, absl::Seconds(1));
  const Answer second = Step(1, 1, absl::Seconds(1));
  EXPECT_FALSE(first->ok());
  harness_->job().Leave(2, 1);
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(second->ok());
}

TEST_F(WholeBatchTest, ARepeatOfACancelledPushIsAnswered) {
  bool answered = false;
  ASSERT_TRUE(harness_->Frame(0, 1, 1, 0, 1.0f, 0, 4).ok());
  ASSERT_TRUE(harness_->Frame(0, 1, 1, 1, 1.0f, 0, 4).ok());
  const HostedJob::ParkedId parked = harness_->job().FinishPush(
      0, 1, 1, [&](const absl::StatusOr<PushReply>&) { answered = true; });
  harness_->job().CancelPush(parked);
  Step(1, 1, absl::Seconds(1), /*samples=*/8);
  EXPECT_FALSE(answered);
  const Answer repeated = harness_->Push(0, 1, 1, 1.0f, 0, 4);
  ASSERT_TRUE(repeated->ok()) << repeated->status();
  EXPECT_TRUE((*repeated)->block(0).verdict() == ACCEPTED);
  EXPECT_EQ(harness_->Value(0), -1.0f);
}

TEST_F(WholeBatchTest, ARenewalNamesTheSlotThatPushesWaitFor) {
  Step(0, 1, absl::Seconds(1));
  Step(1, 1, absl::Seconds(1));
  const absl::StatusOr<RenewReply> reply = harness_->job().Renew(0, 1, absl::ZeroDuration());
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_TRUE(reply->has_waited_for());
  EXPECT_EQ(reply->waited_for().slot(), 2);
}

TEST(StepTimesTest, TheUsualStepIsTheMedianOfTheLastFive) {
  StepTimes times;
  EXPECT_EQ(times.Usual(0), absl::InfiniteDuration());
  absl::Duration now = absl::Seconds(100);
  const auto step = [&](absl::Duration took) {
    times.PullAnswered(0, now);
    now += took;
    times.PushEnded(0, now);
  };
  step(absl::Seconds(1));
  EXPECT_EQ(times.Usual(0), absl::Seconds(1));
  // A repeated push that follows no pull is not measured.
  now += absl::Seconds(50);
  times.PushEnded(0, now);
  for (const int seconds : {2, 60, 3, 2}) step(absl::Seconds(seconds));
  EXPECT_EQ(times.Usual(0), absl::Seconds(2));
  for (int i = 0; i < 5; ++i) step(absl::Seconds(7));
  EXPECT_EQ(times.Usual(0), absl::Seconds(7));
  EXPECT_EQ(times.Usual(1), absl::InfiniteDuration());
}

}  // namespace
}  // namespace torchps
