#include "torchps/server/parked/push_budget.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace torchps {
namespace {

using Share = PushBudget::Share;

class PushBudgetTest : public ::testing::Test {
 protected:
  bool TryTake(Share share, int64_t bytes) { return budget_.share(share).TryTake(bytes); }

  PushBudget budget_{16};
};

TEST_F(PushBudgetTest, LimitsEachShare) {
  EXPECT_EQ(budget_.share(Share::kWorking).capacity(), 16);
  EXPECT_EQ(budget_.share(Share::kStalled).capacity(), 8);
  EXPECT_EQ(budget_.share(Share::kUnverified).capacity(), 2);
}

TEST_F(PushBudgetTest, AFullShareLeavesTheOthersTheirBytes) {
  EXPECT_TRUE(TryTake(Share::kStalled, 8));
  EXPECT_TRUE(TryTake(Share::kUnverified, 2));
  EXPECT_FALSE(TryTake(Share::kStalled, 1));
  EXPECT_FALSE(TryTake(Share::kUnverified, 1));
  EXPECT_TRUE(TryTake(Share::kWorking, 16));
  EXPECT_FALSE(TryTake(Share::kWorking, 1));
  EXPECT_EQ(budget_.held(), 26);
}

TEST_F(PushBudgetTest, WaitersForOneShareDoNotBlockAnother) {
  ASSERT_TRUE(TryTake(Share::kWorking, 16));
  ASSERT_NE(budget_.share(Share::kWorking).Take(1, [] {}), 0u);
  EXPECT_TRUE(TryTake(Share::kStalled, 1));
  EXPECT_TRUE(TryTake(Share::kUnverified, 1));
}

TEST_F(PushBudgetTest, HeldIsTheSumOfTheShares) {
  ASSERT_TRUE(TryTake(Share::kWorking, 4));
  ASSERT_TRUE(TryTake(Share::kStalled, 2));
  ASSERT_TRUE(TryTake(Share::kUnverified, 1));
  EXPECT_EQ(budget_.held(), 7);
  budget_.share(Share::kStalled).GiveBack(2);
  EXPECT_EQ(budget_.held(), 5);
}

}  // namespace
}  // namespace torchps
