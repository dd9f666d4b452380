#include "gtest/gtest.h"
#include "torchps/common/sample_order.h"
#include "torchps/worker/loop/lease_cursor.h"

namespace torchps {
namespace {

TEST(EpochPositionsTest, PositionsFollowTheEpochsOrder) {
  EpochPositions positions(/*seed=*/5, /*samples=*/100);
  for (const int epoch : {1, 2, 1}) {
    const std::vector<int64_t> order = EpochOrder(5, epoch, 100);
    const auto samples = positions.Samples(epoch, 40, 60);
    EXPECT_EQ(samples, absl::MakeConstSpan(order).subspan(40, 20)) << "epoch " << epoch;
  }
}

TEST(EpochPositionsTest, ARangeBeyondTheDataIsEmpty) {
  EpochPositions positions(5, 100);
  EXPECT_TRUE(positions.Samples(1, 90, 101).empty());
  EXPECT_TRUE(positions.Samples(1, -1, 10).empty());
  EXPECT_TRUE(positions.Samples(1, 20, 10).empty());
  EXPECT_TRUE(positions.Samples(0, 0, 10).empty());
}

}  // namespace
}  // namespace torchps
