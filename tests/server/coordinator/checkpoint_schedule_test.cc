#include "torchps/server/coordinator/checkpoint_schedule.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

CheckpointSchedule::Options EveryMinute() {
  CheckpointSchedule::Options options;
  options.interval = absl::Seconds(60);
  options.keep = 2;
  options.first_interval = options.interval;
  return options;
}

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

// Takes a checkpoint that succeeds. Returns its number.
uint64_t Take(CheckpointSchedule& schedule, absl::Duration now, int64_t steps = 0,
              uint64_t nonfinite = 0) {
  const uint64_t number = schedule.Begin(now, steps);
  CheckpointStatus status;
  status.set_nonfinite_blocks(nonfinite);
  schedule.Succeed(status, now);
  return number;
}

TEST(CheckpointScheduleTest, NoCheckpointIsDueBeforeTheStart) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Request();
  EXPECT_FALSE(schedule.Due(At(1000), 1000));
}

TEST(CheckpointScheduleTest, ACheckpointIsDueAtTheStartAndAfterEachInterval) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(10), 0);
  ASSERT_TRUE(schedule.Due(At(10), 0));
  EXPECT_EQ(Take(schedule, At(10)), 1u);
  EXPECT_FALSE(schedule.Due(At(69), 1000));
  ASSERT_TRUE(schedule.Due(At(70), 0));
  EXPECT_EQ(Take(schedule, At(70)), 2u);
}

TEST(CheckpointScheduleTest, EarlyIntervalsDoubleUpToTheFullInterval) {
  CheckpointSchedule::Options options = EveryMinute();
  options.first_interval = absl::Seconds(10);
  CheckpointSchedule schedule(options);
  schedule.Start(At(0), 0);
  double at = 0;
  for (const double interval : {0, 10, 20, 40, 60, 60}) {
    at += interval;
    EXPECT_FALSE(schedule.Due(At(at - 0.5), 0) && interval > 0);
    ASSERT_TRUE(schedule.Due(At(at), 0)) << at;
    Take(schedule, At(at));
  }
  CheckpointSchedule short_one(
      {/*interval=*/absl::Seconds(4), /*first_interval=*/absl::Seconds(10)});
  short_one.Start(At(0), 0);
  Take(short_one, At(0));
  EXPECT_TRUE(short_one.Due(At(4), 0)) << "at the latest after the interval";
}

TEST(CheckpointScheduleTest, ACheckpointIsDueAfterTheConfiguredSteps) {
  CheckpointSchedule::Options options;
  options.steps = 100;
  CheckpointSchedule schedule(options);
  schedule.Start(At(0), 0);
  Take(schedule, At(0));
  EXPECT_FALSE(schedule.Due(At(1e6), 99));
  ASSERT_TRUE(schedule.Due(At(1e6), 100));
  Take(schedule, At(1e6), 120);
  EXPECT_FALSE(schedule.Due(At(1e6), 219));
  EXPECT_TRUE(schedule.Due(At(1e6), 220));
}

TEST(CheckpointScheduleTest, WithoutAnIntervalOnlyARequestIsDue) {
  CheckpointSchedule schedule{CheckpointSchedule::Options()};
  schedule.Start(At(0), 0);
  EXPECT_FALSE(schedule.Due(At(1e6), 1000000));
  schedule.Request();
  ASSERT_TRUE(schedule.Due(At(1e6), 1000000));
  Take(schedule, At(1e6));
  schedule.End(/*one_more=*/true);
  EXPECT_FALSE(schedule.Due(At(1e6), 1000000));
}

TEST(CheckpointScheduleTest, AServerThatNeedsACheckpointGetsOneAfterThePauseOfAFailure) {
  CheckpointSchedule schedule{CheckpointSchedule::Options()};
  schedule.Hasten();
  schedule.Start(At(0), 0);
  EXPECT_FALSE(schedule.Due(At(0), 0)) << "there was nothing to save";
  schedule.Hasten();
  ASSERT_TRUE(schedule.Due(At(1), 0));
  schedule.Begin(At(1), 0);
  schedule.Hasten();
  schedule.Fail(absl::ResourceExhaustedError("the disk is full"), At(2));
  EXPECT_FALSE(schedule.Due(At(1e6), 0)) << "the one that ran counts";
  schedule.Hasten();
  EXPECT_FALSE(schedule.Due(At(2.5), 0));
  ASSERT_TRUE(schedule.Due(At(3), 0));
  Take(schedule, At(3));
  schedule.End(/*one_more=*/true);
  schedule.Hasten();
  EXPECT_FALSE(schedule.Due(At(1e6), 0));
}

TEST(CheckpointScheduleTest, ARequestDuringACheckpointMakesTheNextOneDueAtOnce) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(0), 0);
  EXPECT_EQ(schedule.Begin(At(0), 0), 1u);
  schedule.Request();
  EXPECT_FALSE(schedule.Due(At(500), 0));
  schedule.Succeed(CheckpointStatus(), At(1));
  ASSERT_TRUE(schedule.Due(At(1), 0));
  EXPECT_EQ(schedule.Begin(At(1), 0), 2u);
}

TEST(CheckpointScheduleTest, KeepsTheNewestCheckpointsThatSucceeded) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(0), 0);
  Take(schedule, At(0));
  Take(schedule, At(60));
  ASSERT_EQ(schedule.Begin(At(120), 0), 3u);
  EXPECT_THAT(schedule.KeepList(/*finite=*/true), ElementsAre(2, 3));
  schedule.Fail(absl::ResourceExhaustedError("the disk is full"), At(121));
  EXPECT_THAT(schedule.memory().kept, ElementsAre(1, 2));
  EXPECT_EQ(schedule.memory().status.last_error(), "the disk is full");
  EXPECT_EQ(schedule.memory().status.failed(), 1u);
  EXPECT_EQ(schedule.memory().status.number(), 2u);
  EXPECT_FALSE(schedule.Due(At(121.5), 0)) << "not urgent";
  ASSERT_TRUE(schedule.Due(At(122), 0));
  EXPECT_EQ(Take(schedule, At(122)), 4u) << "a server may hold a part of number 3";
  EXPECT_THAT(schedule.memory().kept, ElementsAre(2, 4));
  EXPECT_EQ(schedule.memory().status.last_error(), "");
  EXPECT_EQ(schedule.memory().status.completed(), 3u);
}

TEST(CheckpointScheduleTest, AlsoKeepsTheNewestFiniteCheckpoint) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(0), 0);
  double now = 0;
  const auto take = [&](uint64_t nonfinite) {
    Take(schedule, At(now), 0, nonfinite);
    now += 60;
    return schedule.memory().kept;
  };
  take(0);
  EXPECT_THAT(take(0), ElementsAre(1, 2));
  EXPECT_THAT(take(5), ElementsAre(2, 3));
  EXPECT_THAT(take(5), ElementsAre(2, 3, 4));
  EXPECT_THAT(take(1), ElementsAre(2, 4, 5));
  EXPECT_EQ(schedule.memory().status.nonfinite_blocks(), 1u);
  EXPECT_EQ(schedule.newest_finite(), 2u);
  // The servers get the list of checkpoints to keep before they know whether the current one is
  // finite.
  ASSERT_EQ(schedule.Begin(At(now), 0), 6u);
  EXPECT_THAT(schedule.KeepList(/*finite=*/true), ElementsAre(5, 6));
  EXPECT_THAT(schedule.KeepList(/*finite=*/false), ElementsAre(2, 5, 6));
  schedule.Fail(absl::UnavailableError("away"), At(now));
  EXPECT_THAT(schedule.memory().kept, ElementsAre(2, 4, 5));

  // After a restart the schedule remembers which checkpoints it kept.
  CheckpointSchedule again(EveryMinute());
  again.Restore(schedule.memory());
  again.Start(At(1000), 0);
  EXPECT_EQ(again.newest_finite(), 2u);
  EXPECT_EQ(Take(again, At(1060), 0, /*nonfinite=*/3), 7u);
  EXPECT_THAT(again.memory().kept, ElementsAre(2, 5, 7));
  EXPECT_EQ(Take(again, At(1120)), 8u);
  EXPECT_THAT(again.memory().kept, ElementsAre(7, 8)) << "a finite checkpoint replaces them";
  EXPECT_EQ(again.newest_finite(), 8u);
}

TEST(CheckpointScheduleTest, KeepsOnlyTheNewestIfNoneIsFinite) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(0), 0);
  for (double now : {0, 60, 120, 180}) Take(schedule, At(now), 0, /*nonfinite=*/1);
  EXPECT_THAT(schedule.memory().kept, ElementsAre(3, 4));
}

TEST(CheckpointScheduleTest, EachFailureLengthensThePauseBeforeTheNextAttempt) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(0), 0);
  absl::Duration now = At(0);
  for (const double pause : {1, 2, 4, 8, 16, 32, 64, 120, 120}) {
    schedule.Begin(now, 0);
    schedule.Fail(absl::UnavailableError("away"), now);
    EXPECT_FALSE(schedule.Due(now + At(pause - 0.5), 0));
    now += At(pause);
    ASSERT_TRUE(schedule.Due(now, 0));
  }
}

TEST(CheckpointScheduleTest, OneCheckpointThatBeginsAfterTheEndMustSucceed) {
  CheckpointSchedule schedule(EveryMinute());
  schedule.Start(At(0), 0);
  schedule.Begin(At(0), 0);
  schedule.End(/*one_more=*/true);
  schedule.Succeed(CheckpointStatus(), At(1));
  ASSERT_TRUE(schedule.Due(At(1), 0)) << "that checkpoint began before the end";
  schedule.Begin(At(1), 0);
  schedule.Fail(absl::UnavailableError("server 1 is away"), At(2));
  ASSERT_TRUE(schedule.Due(At(12), 0));
  Take(schedule, At(12));
  EXPECT_FALSE(schedule.Due(At(1e6), 1000000));
  schedule.Request();
  EXPECT_TRUE(schedule.Due(At(1e6), 1000000));
}

TEST(CheckpointScheduleTest, RestoresTheCheckpointNumbersAndTheInterval) {
  CheckpointSchedule::Memory memory;
  memory.last_number = 7;
  memory.kept = {5, 6};
  CheckpointSchedule schedule(EveryMinute());
  schedule.Restore(memory);
  schedule.Start(At(100), 0);
  EXPECT_FALSE(schedule.Due(At(159), 0)) << "a checkpoint exists";
  ASSERT_TRUE(schedule.Due(At(160), 0));
  EXPECT_EQ(Take(schedule, At(160)), 8u);
  EXPECT_THAT(schedule.memory().kept, ElementsAre(6, 8));
}

}  // namespace
}  // namespace torchps
