#include "server/coordinator/slot_views.h"

#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

constexpr absl::Duration kLease = absl::Seconds(9);

class SlotViewsTest : public ::testing::Test {
 protected:
  // At `seconds`, `slot` says which servers are silent.
  bool Hear(double seconds, SlotId slot, const std::vector<int>& silent) {
    return views_.Hear(slot, silent, absl::ZeroDuration(), absl::Seconds(seconds));
  }

  SlotViews views_{kLease};
};

TEST_F(SlotViewsTest, ASlotIsCutOffFromAServerThatAnotherReaches) {
  EXPECT_FALSE(Hear(0, 0, {}));
  EXPECT_FALSE(Hear(1, 1, {1})) << "slot 0 may be about to say so too";
  EXPECT_FALSE(Hear(3, 0, {}));
  EXPECT_FALSE(Hear(4, 1, {1}));
  EXPECT_FALSE(Hear(6, 0, {}));
  EXPECT_FALSE(Hear(7, 1, {1}));
  EXPECT_FALSE(Hear(9, 0, {}));
  EXPECT_TRUE(Hear(10, 1, {1})) << "a lease later slot 0 would have noticed";
  EXPECT_FALSE(Hear(12, 0, {})) << "who reaches it is not cut off";
  EXPECT_FALSE(Hear(13, 1, {})) << "it is reached again";
}

TEST_F(SlotViewsTest, AServerThatNobodyReachesIsAwayAndAllWaitForIt) {
  Hear(0, 0, {});
  Hear(0.5, 1, {1});
  // Slot 0 notices nearly two renewals later.
  Hear(3, 0, {});
  Hear(3.5, 1, {1});
  for (double seconds = 6; seconds < 100; seconds += 3) {
    EXPECT_FALSE(Hear(seconds, 0, {1})) << seconds;
    EXPECT_FALSE(Hear(seconds + 0.5, 1, {1})) << seconds;
  }
}

TEST_F(SlotViewsTest, ASlotAloneIsNeverCutOff) {
  for (double seconds = 0; seconds < 100; seconds += 3) EXPECT_FALSE(Hear(seconds, 0, {0, 1}));
}

TEST_F(SlotViewsTest, WhatTheDeadSaidDoesNotCount) {
  Hear(0, 1, {1});
  Hear(7, 0, {});
  views_.Forget(0);
  EXPECT_FALSE(Hear(8, 1, {1}));
  // Nor what nobody has heard for a lease.
  Hear(9, 2, {});
  EXPECT_TRUE(Hear(10, 1, {1}));
  EXPECT_FALSE(Hear(18.5, 1, {1}));
}

TEST_F(SlotViewsTest, EachServerIsJudgedByItself) {
  Hear(0, 1, {1});
  Hear(8, 1, {1, 2});
  EXPECT_FALSE(Hear(9, 0, {1})) << "that one is away for all";
  EXPECT_FALSE(Hear(10, 1, {1, 2})) << "of server 2 it is too early to tell";
  Hear(15, 0, {1});
  EXPECT_TRUE(Hear(16, 1, {1, 2}));
}

TEST_F(SlotViewsTest, KeepsForHowLongATrainerHasBeenAtOnePieceOfWork) {
  views_.Hear(3, {}, absl::Seconds(41), absl::ZeroDuration());
  EXPECT_EQ(views_.standing(3), absl::Seconds(41));
  EXPECT_EQ(views_.standing(4), absl::ZeroDuration());
  views_.Forget(3);
  EXPECT_EQ(views_.standing(3), absl::ZeroDuration());
}

}  // namespace
}  // namespace torchps
