#include <cmath>

#include "gtest/gtest.h"
#include "torchps/client/step_set.h"

namespace torchps {
namespace {

constexpr absl::Duration kStart = absl::Seconds(100);

TEST(UpdatePaceTest, IsUnknownBeforeTheFirstUpdate) {
  UpdatePace pace;
  EXPECT_TRUE(std::isinf(pace.UpdatesSinceLastStep(0, kStart)));
  EXPECT_TRUE(std::isinf(pace.UpdatesSinceLastStep(0, kStart + absl::Seconds(1))));
  EXPECT_TRUE(std::isinf(pace.UpdatesSinceLastStep(1, kStart + absl::Seconds(2))));
}

TEST(UpdatePaceTest, EstimatesTheUpdatesMissedDuringAPause) {
  UpdatePace pace;
  absl::Duration now = kStart;
  Version version = 0;
  for (int step = 0; step < 10; ++step) {
    pace.UpdatesSinceLastStep(version++, now);
    now += absl::Milliseconds(100);
  }
  EXPECT_DOUBLE_EQ(pace.UpdatesSinceLastStep(version++, now), 1);
  EXPECT_DOUBLE_EQ(pace.UpdatesSinceLastStep(version, now + absl::Seconds(3)), 30);
}

TEST(UpdatePaceTest, CountsSeveralUpdatesPerStepOfASlowWorker) {
  UpdatePace pace;
  for (int step = 0; step < 10; ++step) {
    pace.UpdatesSinceLastStep(4 * step, kStart + step * absl::Seconds(1));
  }
  EXPECT_DOUBLE_EQ(pace.UpdatesSinceLastStep(40, kStart + absl::Seconds(10)), 4);
}

}  // namespace
}  // namespace torchps
