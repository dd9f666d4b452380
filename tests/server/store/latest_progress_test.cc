#include "gtest/gtest.h"
#include "torchps/server/store/push_gate.h"

namespace torchps {
namespace {

TEST(LatestProgressTest, ProgressMayBeBehindTheLatestByTheSlack) {
  LatestProgress latest(/*slack=*/100);
  EXPECT_EQ(latest.Meet(50), 50u);
  EXPECT_EQ(latest.Meet(120), 120u);
  EXPECT_EQ(latest.Meet(20), 20u);
  EXPECT_EQ(latest.Meet(1000), 1000u);
  EXPECT_EQ(latest.Meet(950), 950u);
  EXPECT_EQ(latest.Meet(899), 900u);
  EXPECT_EQ(latest.Meet(20), 900u);
  EXPECT_EQ(latest.Meet(UINT32_MAX), UINT32_MAX);
  EXPECT_EQ(latest.Meet(0), UINT32_MAX - 100);
}

TEST(LatestProgressTest, WithoutSlackProgressNeverDecreases) {
  LatestProgress latest(/*slack=*/0);
  EXPECT_EQ(latest.Meet(7), 7u);
  EXPECT_EQ(latest.Meet(3), 7u);
}

}  // namespace
}  // namespace torchps
