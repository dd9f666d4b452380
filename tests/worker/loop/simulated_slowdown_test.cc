#include "worker/loop/simulated_slowdown.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

constexpr int64_t kBatch = 32;

class SimulatedSlowdownTest : public ::testing::Test {
 protected:
  SimulatedSlowdown Make(SimulatedSlowdown::Options options) {
    options.wait = [this](absl::Duration time) {
      waited_.push_back(time);
      clock_.Advance(time);
    };
    return SimulatedSlowdown(std::move(options), kBatch, &clock_);
  }

  // Simulates a step that was just computed.
  absl::Duration Step(SimulatedSlowdown& handicap, int64_t samples, absl::Duration data,
                      absl::Duration compute) {
    clock_.Advance(data + compute);
    return handicap.Hold(samples, data, compute);
  }

  ManualClock clock_;
  std::vector<absl::Duration> waited_;
};

TEST_F(SimulatedSlowdownTest, AddsNothingByDefault) {
  SimulatedSlowdown handicap(SimulatedSlowdown::Options(), kBatch, &clock_);
  EXPECT_FALSE(handicap.any());
  EXPECT_EQ(Step(handicap, kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::ZeroDuration());
}

TEST_F(SimulatedSlowdownTest, SlowStretchesComputingButNotSampleFetching) {
  SimulatedSlowdown::Options options;
  options.slow = 4;
  SimulatedSlowdown handicap = Make(options);
  EXPECT_TRUE(handicap.any());
  EXPECT_EQ(Step(handicap, kBatch, absl::Milliseconds(5), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  EXPECT_EQ(Step(handicap, kBatch / 4, absl::Milliseconds(5), absl::Milliseconds(2)),
            absl::Milliseconds(6))
      << "a smaller batch computes faster, so the added time is shorter";
  EXPECT_EQ(waited_, (std::vector<absl::Duration>{absl::Milliseconds(30), absl::Milliseconds(6)}));
}

TEST_F(SimulatedSlowdownTest, PaceIsTheMinimumTimeOfAShare) {
  SimulatedSlowdown::Options options;
  options.pace = absl::Milliseconds(48);
  SimulatedSlowdown handicap = Make(options);
  EXPECT_EQ(Step(handicap, kBatch, absl::Milliseconds(8), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  EXPECT_EQ(Step(handicap, kBatch / 2, absl::Milliseconds(4), absl::Milliseconds(10)),
            absl::Milliseconds(10));
  EXPECT_EQ(Step(handicap, kBatch * 2, absl::ZeroDuration(), absl::Milliseconds(6)),
            absl::Milliseconds(90));
  EXPECT_EQ(Step(handicap, kBatch, absl::Milliseconds(8), absl::Milliseconds(41)),
            absl::ZeroDuration())
      << "the step took longer without the handicap";
  EXPECT_EQ(waited_.size(), 3);
}

TEST_F(SimulatedSlowdownTest, TheForwardPassTakesItsShareOfTime) {
  SimulatedSlowdown::Options options;
  options.slow = 4;
  SimulatedSlowdown slow = Make(options);
  slow.HoldForward(kBatch, absl::Milliseconds(3));
  EXPECT_EQ(Step(slow, kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  // Steps that ended there do not affect the next step.
  slow.HoldForward(kBatch, absl::Milliseconds(2));
  slow.HoldForward(kBatch, absl::Milliseconds(3));
  EXPECT_EQ(Step(slow, kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  EXPECT_EQ(waited_, (std::vector<absl::Duration>{absl::Milliseconds(9), absl::Milliseconds(21),
                                                  absl::Milliseconds(6), absl::Milliseconds(9),
                                                  absl::Milliseconds(21)}));

  waited_.clear();
  options = SimulatedSlowdown::Options();
  options.pace = absl::Milliseconds(60);
  SimulatedSlowdown paced = Make(options);
  paced.HoldForward(kBatch / 2, absl::Milliseconds(4));
  EXPECT_EQ(Step(paced, kBatch / 2, absl::Milliseconds(2), absl::Milliseconds(12)),
            absl::Milliseconds(16));
  EXPECT_EQ(waited_, (std::vector<absl::Duration>{absl::Milliseconds(6), absl::Milliseconds(10)}));
}

TEST_F(SimulatedSlowdownTest, SlowMultipliesThePace) {
  SimulatedSlowdown::Options options;
  options.pace = absl::Milliseconds(50);
  options.slow = 4;
  SimulatedSlowdown handicap = Make(options);
  EXPECT_EQ(Step(handicap, kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::Milliseconds(190));
}

TEST_F(SimulatedSlowdownTest, PausesOncePerIntervalWithinAStep) {
  SimulatedSlowdown::Options options;
  options.pause = absl::Seconds(2);
  options.pause_every = absl::Seconds(10);
  SimulatedSlowdown handicap = Make(options);
  std::vector<absl::Duration> pauses;
  const absl::Duration began = clock_.Now();
  for (int step = 0; step < 30; ++step) {
    if (Step(handicap, kBatch, absl::ZeroDuration(), absl::Seconds(1)) > absl::ZeroDuration()) {
      pauses.push_back(clock_.Now() - began);
    }
  }
  EXPECT_EQ(pauses,
            (std::vector<absl::Duration>{absl::Seconds(12), absl::Seconds(22), absl::Seconds(32)}));
  EXPECT_EQ(waited_, std::vector<absl::Duration>(3, absl::Seconds(2)));
}

TEST_F(SimulatedSlowdownTest, MergesPausesOutsideAStep) {
  SimulatedSlowdown::Options options;
  options.pause = absl::Seconds(2);
  options.pause_every = absl::Seconds(10);
  SimulatedSlowdown handicap = Make(options);
  Step(handicap, kBatch, absl::ZeroDuration(), absl::Seconds(1));
  clock_.Advance(absl::Seconds(34));
  EXPECT_EQ(Step(handicap, kBatch, absl::ZeroDuration(), absl::Seconds(1)), absl::Seconds(2));
  EXPECT_EQ(Step(handicap, kBatch, absl::ZeroDuration(), absl::Seconds(1)), absl::ZeroDuration());
  EXPECT_EQ(Step(handicap, kBatch, absl::ZeroDuration(), absl::Seconds(1)), absl::Seconds(2))
      << "40 seconds after the first step began";
}

TEST_F(SimulatedSlowdownTest, PausesDuringAHeldStepBelongToIt) {
  SimulatedSlowdown::Options options;
  options.slow = 9;
  options.pause = absl::Seconds(2);
  options.pause_every = absl::Seconds(8);
  SimulatedSlowdown handicap = Make(options);
  EXPECT_EQ(Step(handicap, kBatch, absl::ZeroDuration(), absl::Seconds(1)), absl::Seconds(10));
}

TEST(HandicapOptionsTest, APauseIsTwoNumbersOfSeconds) {
  SimulatedSlowdown::Options options;
  ASSERT_TRUE(SimulatedSlowdown::ParsePause("", &options).ok());
  EXPECT_FALSE(options.any());
  ASSERT_TRUE(SimulatedSlowdown::ParsePause("0.5:10", &options).ok());
  EXPECT_EQ(options.pause, absl::Milliseconds(500));
  EXPECT_EQ(options.pause_every, absl::Seconds(10));
}

TEST(HandicapOptionsTest, NamesEachMistake) {
  const auto pause = [](absl::string_view text) {
    SimulatedSlowdown::Options options;
    return std::string(SimulatedSlowdown::ParsePause(text, &options).message());
  };
  EXPECT_EQ(pause("2"), "--pause is 2; expected FOR:EVERY in seconds, as 2:10");
  EXPECT_EQ(pause("2:x"), "--pause is 2:x; expected FOR:EVERY in seconds, as 2:10");
  EXPECT_EQ(pause("2:10:1"), "--pause is 2:10:1; expected FOR:EVERY in seconds, as 2:10");
  const std::string range = "; expected FOR:EVERY in seconds, with FOR above 0 and below EVERY";
  EXPECT_EQ(pause("10:10"), "--pause is 10:10" + range);
  EXPECT_EQ(pause("0:10"), "--pause is 0:10" + range);
  EXPECT_EQ(pause("-1:10"), "--pause is -1:10" + range);

  SimulatedSlowdown::Options options;
  options.slow = 0.5;
  EXPECT_EQ(SimulatedSlowdown::Check(options).message(),
            "--slow is 0.5; expected a factor of at least 1");
  options.slow = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(SimulatedSlowdown::Check(options).ok());
  options = SimulatedSlowdown::Options();
  options.pace = -absl::Milliseconds(5);
  EXPECT_EQ(SimulatedSlowdown::Check(options).message(),
            "--pace is -5; expected milliseconds, 0 for none");
}

}  // namespace
}  // namespace torchps
