#include "torchps/worker/loop/prefetch_policy.h"

#include <optional>

#include "gtest/gtest.h"

namespace torchps {
namespace {

// Enters `steps` steps with these durations. Returns how often the decision changed.
int Take(PrefetchPolicy& ahead, int steps, absl::Duration pull, absl::Duration step) {
  int changes = 0;
  for (int i = 0; i < steps; ++i) {
    ahead.AddPull(pull);
    changes += ahead.AddStep(step) ? 1 : 0;
  }
  return changes;
}

TEST(PrefetchPolicyTest, ExplicitSettingsOverrideMeasurements) {
  for (const bool wanted : {true, false}) {
    PrefetchPolicy ahead(wanted);
    EXPECT_EQ(ahead.on(), wanted);
    EXPECT_EQ(Take(ahead, 50, absl::Milliseconds(50), absl::Milliseconds(50)), 0);
    EXPECT_EQ(Take(ahead, 50, absl::ZeroDuration(), absl::Milliseconds(50)), 0);
    EXPECT_EQ(ahead.on(), wanted);
  }
}

TEST(PrefetchPolicyTest, StaysOffIfPullsAreShort) {
  PrefetchPolicy ahead(std::nullopt);
  EXPECT_FALSE(ahead.on());
  EXPECT_EQ(Take(ahead, 1000, absl::Milliseconds(1), absl::Milliseconds(50)), 0);
  EXPECT_FALSE(ahead.on());
  EXPECT_NEAR(ahead.share(), 1.0 / 51, 1e-9);
}

TEST(PrefetchPolicyTest, BeginsAfterSeveralStepsWithLongPulls) {
  PrefetchPolicy ahead(std::nullopt);
  EXPECT_EQ(Take(ahead, 7, absl::Milliseconds(20), absl::Milliseconds(80)), 0);
  EXPECT_FALSE(ahead.on());
  EXPECT_EQ(Take(ahead, 100, absl::Milliseconds(20), absl::Milliseconds(80)), 1);
  EXPECT_TRUE(ahead.on());
  EXPECT_NEAR(ahead.share(), 0.2, 1e-9);
}

TEST(PrefetchPolicyTest, TheFirstPullDoesNotCount) {
  PrefetchPolicy ahead(std::nullopt);
  ahead.AddPull(absl::Seconds(10));
  ahead.AddStep(absl::Milliseconds(50));
  EXPECT_EQ(Take(ahead, 20, absl::Milliseconds(1), absl::Milliseconds(50)), 0);
}

TEST(PrefetchPolicyTest, AShareNearTheLimitDoesNotToggleIt) {
  PrefetchPolicy ahead(std::nullopt);
  Take(ahead, 50, absl::Milliseconds(12), absl::Milliseconds(88));
  ASSERT_TRUE(ahead.on());
  int changes = 0;
  for (int i = 0; i < 500; ++i) {
    changes += Take(ahead, 1, absl::Milliseconds(i % 2 == 0 ? 8 : 13), absl::Milliseconds(88));
  }
  EXPECT_EQ(changes, 0);
  EXPECT_EQ(Take(ahead, 50, absl::Milliseconds(4), absl::Milliseconds(96)), 1);
  EXPECT_FALSE(ahead.on());
  EXPECT_EQ(Take(ahead, 50, absl::Milliseconds(8), absl::Milliseconds(92)), 0);
}

}  // namespace
}  // namespace torchps
