#include "torchps/worker/loop/step_accounting.h"

#include <cmath>
#include <utility>

#include "gtest/gtest.h"

namespace torchps {
namespace {

StepAccounting::Outcome Computed(int64_t samples, double loss_sum) {
  StepAccounting::Outcome step;
  step.samples = samples;
  step.loss_sum = loss_sum;
  return step;
}

LeaseRange Part(int64_t begin, int64_t end) {
  LeaseRange part;
  part.set_begin(begin);
  part.set_end(end);
  return part;
}

PushResult WithVerdicts(uint64_t accepted, uint64_t late, uint64_t withheld) {
  PushResult push;
  push.verdicts.set_accepted(accepted);
  push.verdicts.set_late(late);
  push.verdicts.set_withheld(withheld);
  return push;
}

PushResult Skipped() {
  PushResult push;
  push.skipped = true;
  return push;
}

TrainingSpec QuarantineAfter(int steps) {
  TrainingSpec training;
  training.set_nonfinite(SKIP_BLOCK);
  training.set_quarantine_after(steps);
  return training;
}

TEST(StepAccountingTest, UnattributedTimeIsOtherTime) {
  StepAccounting accounting(QuarantineAfter(0));
  accounting.BeginPage(absl::Seconds(100));
  accounting.EnterPull(/*waited=*/absl::Seconds(1), /*pulled=*/absl::Seconds(2));
  StepAccounting::Outcome step = Computed(8, 4);
  step.data_time = absl::Seconds(3);
  step.compute_time = absl::Seconds(4);
  accounting.EnterStep(step);
  accounting.EnterPush(step, Part(0, 8), WithVerdicts(1, 0, 0), absl::Seconds(5));
  accounting.EnterStopped(absl::Seconds(6));
  const StepFigures figures = accounting.Figures(absl::Seconds(128), {/*blocks=*/7, /*pushes=*/2});
  EXPECT_EQ(figures.wait_seconds(), 1);
  EXPECT_EQ(figures.pull_seconds(), 2);
  EXPECT_EQ(figures.data_seconds(), 3);
  EXPECT_EQ(figures.compute_seconds(), 4 + 6);
  EXPECT_EQ(figures.push_seconds(), 5);
  EXPECT_EQ(figures.other_seconds(), 28 - 21);
  EXPECT_EQ(figures.stopped_steps(), 1);
  EXPECT_EQ(figures.rolled_back_blocks(), 7);
  EXPECT_EQ(figures.rolled_back_pushes(), 2);
}

TEST(StepAccountingTest, APushWithoutEffectLosesItsSamples) {
  StepAccounting accounting(QuarantineAfter(0));
  accounting.BeginPage(absl::ZeroDuration());
  const std::pair<PushResult, LeaseRange> pushes[] = {
      {WithVerdicts(3, 0, 0), Part(0, 8)},
      {WithVerdicts(2, 1, 0), Part(8, 16)},   // late for one block only
      {WithVerdicts(0, 2, 1), Part(16, 24)},  // late for each block
      {WithVerdicts(0, 0, 3), Part(24, 32)},  // not finite in any block, and not late
  };
  for (const auto& [push, part] : pushes) {
    accounting.EnterStep(Computed(8, 4));
    accounting.EnterPush(Computed(8, 4), part, push, absl::ZeroDuration());
  }
  const StepFigures figures = accounting.Figures(absl::ZeroDuration(), {});
  EXPECT_EQ(figures.pushes(), 4);
  EXPECT_EQ(figures.rejected_pushes(), 3);
  EXPECT_EQ(figures.samples(), 24);
  EXPECT_EQ(figures.loss_sum(), 12);
  EXPECT_EQ(figures.lost_samples(), 8);
  ASSERT_EQ(accounting.lost().size(), 1);
  EXPECT_EQ(accounting.lost()[0].begin(), 16);
  EXPECT_EQ(accounting.lost()[0].end(), 24);
}

TEST(StepAccountingTest, CountsSamplesWithoutALoss) {
  StepAccounting accounting(QuarantineAfter(0));
  accounting.BeginPage(absl::ZeroDuration());
  const StepAccounting::Outcome without = Computed(8, NAN);
  for (const PushResult& push : {Skipped(), WithVerdicts(1, 0, 1)}) {
    accounting.EnterStep(without);
    accounting.EnterPush(without, Part(0, 8), push, absl::ZeroDuration());
  }
  StepAccounting::Outcome not_finite = without;
  not_finite.not_finite = true;
  accounting.EnterStep(not_finite);
  StepAccounting::Outcome overflowed = Computed(8, 4);  // only the loss is finite
  overflowed.overflowed = true;
  accounting.EnterStep(overflowed);
  const StepFigures figures = accounting.Figures(absl::ZeroDuration(), {});
  EXPECT_EQ(figures.samples(), 32);
  EXPECT_EQ(figures.samples_without_loss(), 24);
  EXPECT_EQ(figures.loss_sum(), 4);
}

TEST(StepAccountingTest, ANewPageStartsAtZeroExceptForCountsInARow) {
  StepAccounting accounting(QuarantineAfter(2));
  accounting.BeginPage(absl::ZeroDuration());
  accounting.EnterStep(Computed(8, 4));
  accounting.EnterPush(Computed(8, 4), Part(0, 8), WithVerdicts(0, 1, 1), absl::Seconds(1));
  accounting.BeginPage(absl::Seconds(2));
  EXPECT_TRUE(accounting.lost().empty());
  StepFigures figures = accounting.Figures(absl::Seconds(2), {});
  EXPECT_EQ(figures.nonfinite_in_a_row(), 1);
  figures.clear_nonfinite_in_a_row();
  for (const double seconds : {figures.push_seconds(), figures.other_seconds()}) {
    EXPECT_EQ(seconds, 0);
  }
  for (const uint64_t count : {figures.samples(), figures.pushes(), figures.rejected_pushes(),
                               figures.lost_samples(), figures.rolled_back_blocks()}) {
    EXPECT_EQ(count, 0);
  }
  EXPECT_EQ(accounting.pushes(), 1);
}

TEST(StepAccountingTest, CountsConsecutiveNonFiniteGradients) {
  StepAccounting accounting(QuarantineAfter(3));
  accounting.BeginPage(absl::ZeroDuration());
  const auto push = [&](const PushResult& result) {
    accounting.EnterStep(Computed(8, 4));
    accounting.EnterPush(Computed(8, 4), Part(0, 8), result, absl::ZeroDuration());
  };
  StepAccounting::Outcome not_finite = Computed(8, NAN);
  not_finite.not_finite = true;
  push(Skipped());
  push(WithVerdicts(1, 0, 1));
  EXPECT_FALSE(accounting.TooOftenNonfinite());
  accounting.EnterStep(not_finite);
  EXPECT_TRUE(accounting.TooOftenNonfinite());
  push(WithVerdicts(1, 0, 0));
  EXPECT_FALSE(accounting.TooOftenNonfinite());
  const StepFigures figures = accounting.Figures(absl::ZeroDuration(), {});
  EXPECT_EQ(figures.nonfinite_in_a_row(), 0);
  EXPECT_EQ(figures.skipped_nonfinite(), 2) << "part of the second gradient was pushed";
  EXPECT_EQ(figures.pushes(), 2);
}

TEST(StepAccountingTest, ScaleOverflowsDoNotCountTowardsQuarantine) {
  StepAccounting accounting(QuarantineAfter(1));
  accounting.BeginPage(absl::ZeroDuration());
  StepAccounting::Outcome step = Computed(8, INFINITY);
  step.not_finite = true;
  step.overflowed = true;
  step.overflows = 1;
  step.skipped_steps = 1;
  accounting.EnterStep(step);
  EXPECT_FALSE(accounting.TooOftenNonfinite());
  const StepFigures figures = accounting.Figures(absl::ZeroDuration(), {});
  EXPECT_EQ(figures.overflows(), 1);
  EXPECT_EQ(figures.skipped_nonfinite(), 0);
}

TEST(StepAccountingTest, UnderStopJobOneNonFiniteGradientIsTooMany) {
  TrainingSpec training = QuarantineAfter(0);
  StepAccounting accounting(training);
  training.set_nonfinite(STOP_JOB);
  StepAccounting stopping(training);
  StepAccounting::Outcome step = Computed(8, NAN);
  step.not_finite = true;
  for (StepAccounting* both : {&accounting, &stopping}) both->EnterStep(step);
  EXPECT_FALSE(accounting.TooOftenNonfinite()) << "0 allows any number";
  EXPECT_TRUE(stopping.TooOftenNonfinite());
}

}  // namespace
}  // namespace torchps
