#include "torchps/server/coordinator/step_time.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/server/coordinator/work/simulated_machine.h"

namespace torchps {
namespace {

double Seconds(const StepTime& time, double samples) {
  return time.fixed_seconds() + samples * time.sample_seconds();
}

TEST(StepTimeTest, TheStepTimeIsKnownAfterFiveSteps) {
  StepTime time;
  for (int step = 0; step < 5; ++step) {
    EXPECT_FALSE(time.known());
    time.Observe(32, 0.2);
  }
  EXPECT_TRUE(time.known());
  EXPECT_NEAR(Seconds(time, 32), 0.2, 1e-9);
}

TEST(StepTimeTest, IfAllStepsHadOneSizeTimeIsProportionalToSamples) {
  StepTime time;
  for (int step = 0; step < 100; ++step) time.Observe(32, 0.2);
  EXPECT_NEAR(Seconds(time, 16), 0.1, 1e-9);
  EXPECT_GT(time.Error(16), 10 * time.Error(32)) << "with a large error";
}

TEST(StepTimeTest, EstimatesTheFixedPartFromSeveralSizes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    uint64_t random = seed;
    const SimulatedMachine machine{0.1, 0.1 / 32, 0.1};
    StepTime time;
    for (int step = 0; step < 500; ++step) {
      const double samples = step % 2 == 0 ? 32 : 16;
      time.Observe(samples, machine.Measure(samples, random));
    }
    EXPECT_NEAR(Seconds(time, 32), 0.2, 0.016) << "seed " << seed;
    EXPECT_NEAR(Seconds(time, 16), 0.15, 0.012) << "seed " << seed;
    EXPECT_NEAR(time.fixed_seconds(), 0.1, 0.03) << "seed " << seed;
    EXPECT_LT(time.Error(24), 0.03) << "seed " << seed;
  }
}

TEST(StepTimeTest, RemembersTheFixedPartWhenTheSizeStopsChanging) {
  StepTime time;
  for (int step = 0; step < 100; ++step) {
    const double samples = step % 2 == 0 ? 32 : 16;
    time.Observe(samples, 0.1 + samples * 0.1 / 32);
  }
  for (int step = 0; step < 100; ++step) time.Observe(16, 0.15);
  EXPECT_NEAR(Seconds(time, 32), 0.2, 0.015);
}

TEST(StepTimeTest, TheEstimatedErrorBoundsTheMeasuredError) {
  for (const SimulatedMachine& machine : {TinyModel(), ResNet()}) {
    double error = 0, sum_of_squares = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      uint64_t random = seed;
      StepTime time;
      for (int step = 0; step < 300; ++step) time.Observe(32, machine.Measure(32, random));
      const double off = Seconds(time, 32) / machine.Seconds(32) - 1;
      sum_of_squares += off * off;
      error += time.Error(32) / 100;
    }
    EXPECT_LT(sum_of_squares / 100, error * error) << "of 100 seeds";
    EXPECT_LT(error, 0.12 * machine.noise);
  }
}

TEST(StepTimeTest, AnOutlierHasLittleEffect) {
  StepTime time;
  for (int step = 0; step < 20; ++step) time.Observe(32, 0.2);
  time.Observe(32, 20);
  EXPECT_NEAR(Seconds(time, 32), 0.2, 0.005);
}

TEST(StepTimeTest, FollowsAChangeOfSpeedInTenSteps) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const double slowness : {2.0, 0.5}) {
      uint64_t random = seed;
      StepTime time;
      for (int step = 0; step < 100; ++step) time.Observe(32, ResNet().Measure(32, random));
      for (int step = 0; step < 10; ++step) time.Observe(32, ResNet(slowness).Measure(32, random));
      EXPECT_NEAR(Seconds(time, 32) / slowness, 0.2, 0.01) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace torchps
