#include "torchps/worker/loop/simulated_slowdown.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr int64_t kBatch = 32;

class SimulatedSlowdownTest : public ::testing::Test {
 protected:
  SimulatedSlowdown Make(SimulatedSlowdown::Options options) {
    options.wait = [this](absl::Duration time) { waited_.push_back(time); };
    return SimulatedSlowdown(std::move(options), kBatch);
  }

  std::vector<absl::Duration> waited_;
};

TEST_F(SimulatedSlowdownTest, AddsNothingByDefault) {
  SimulatedSlowdown handicap(SimulatedSlowdown::Options(), kBatch);
  EXPECT_FALSE(handicap.any());
  EXPECT_EQ(handicap.Hold(kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::ZeroDuration());
}

TEST_F(SimulatedSlowdownTest, SlowStretchesComputingButNotSampleFetching) {
  SimulatedSlowdown::Options options;
  options.slow = 4;
  SimulatedSlowdown handicap = Make(options);
  EXPECT_TRUE(handicap.any());
  EXPECT_EQ(handicap.Hold(kBatch, absl::Milliseconds(5), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  EXPECT_EQ(handicap.Hold(kBatch / 4, absl::Milliseconds(5), absl::Milliseconds(2)),
            absl::Milliseconds(6))
      << "a smaller batch computes faster, so the added time is shorter";
  EXPECT_EQ(waited_, (std::vector<absl::Duration>{absl::Milliseconds(30), absl::Milliseconds(6)}));
}

TEST_F(SimulatedSlowdownTest, PaceIsTheMinimumTimeOfAFullBatch) {
  SimulatedSlowdown::Options options;
  options.pace = absl::Milliseconds(48);
  SimulatedSlowdown handicap = Make(options);
  EXPECT_EQ(handicap.Hold(kBatch, absl::Milliseconds(8), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  EXPECT_EQ(handicap.Hold(kBatch / 2, absl::Milliseconds(4), absl::Milliseconds(10)),
            absl::Milliseconds(10));
  EXPECT_EQ(handicap.Hold(kBatch * 2, absl::ZeroDuration(), absl::Milliseconds(6)),
            absl::Milliseconds(90));
  EXPECT_EQ(handicap.Hold(kBatch, absl::Milliseconds(8), absl::Milliseconds(41)),
            absl::ZeroDuration())
      << "the step took longer without the handicap";
  EXPECT_EQ(waited_.size(), 3);
}

TEST_F(SimulatedSlowdownTest, TheForwardPassGetsItsShareOfTheDelay) {
  SimulatedSlowdown::Options options;
  options.slow = 4;
  SimulatedSlowdown slow = Make(options);
  slow.HoldForward(kBatch, absl::Milliseconds(3));
  EXPECT_EQ(slow.Hold(kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  // The step with 2 ms ends after its forward pass. That must not affect the step after it.
  slow.HoldForward(kBatch, absl::Milliseconds(2));
  slow.HoldForward(kBatch, absl::Milliseconds(3));
  EXPECT_EQ(slow.Hold(kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::Milliseconds(30));
  EXPECT_EQ(waited_, (std::vector<absl::Duration>{absl::Milliseconds(9), absl::Milliseconds(21),
                                                  absl::Milliseconds(6), absl::Milliseconds(9),
                                                  absl::Milliseconds(21)}));

  waited_.clear();
  options = SimulatedSlowdown::Options();
  options.pace = absl::Milliseconds(60);
  SimulatedSlowdown paced = Make(options);
  paced.HoldForward(kBatch / 2, absl::Milliseconds(4));
  EXPECT_EQ(paced.Hold(kBatch / 2, absl::Milliseconds(2), absl::Milliseconds(12)),
            absl::Milliseconds(16));
  EXPECT_EQ(waited_, (std::vector<absl::Duration>{absl::Milliseconds(6), absl::Milliseconds(10)}));
}

TEST_F(SimulatedSlowdownTest, SlowMultipliesThePace) {
  SimulatedSlowdown::Options options;
  options.pace = absl::Milliseconds(50);
  options.slow = 4;
  SimulatedSlowdown handicap = Make(options);
  EXPECT_EQ(handicap.Hold(kBatch, absl::ZeroDuration(), absl::Milliseconds(10)),
            absl::Milliseconds(190));
}

TEST(SimulatedSlowdownOptionsTest, ErrorNamesEachMistake) {
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
