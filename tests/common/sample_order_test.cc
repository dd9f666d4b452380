#include "torchps/common/sample_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(SampleOrderTest, VisitsEverySampleOnce) {
  for (const int64_t samples : {1, 2, 3, 1000, 60000}) {
    std::vector<int64_t> order = EpochOrder(/*seed=*/5, /*epoch=*/3, samples);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(samples);
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(order, all) << samples << " samples";
  }
}

TEST(SampleOrderTest, IsEmptyForNoSamples) { EXPECT_TRUE(EpochOrder(5, 1, 0).empty()); }

// Computed once by a second implementation; workers of different builds must agree.
TEST(SampleOrderTest, IsTheSameOrderEverywhere) {
  EXPECT_EQ(EpochOrder(1, 1, 10), (std::vector<int64_t>{4, 3, 0, 8, 2, 5, 1, 7, 6, 9}));
  EXPECT_EQ(EpochOrder(1, 2, 10), (std::vector<int64_t>{6, 3, 1, 8, 0, 5, 4, 2, 9, 7}));
  EXPECT_EQ(EpochOrder(2, 1, 10), (std::vector<int64_t>{4, 2, 5, 6, 3, 9, 0, 1, 7, 8}));
  std::vector<int64_t> order = EpochOrder(1, 1, 60000);
  order.resize(5);
  EXPECT_EQ(order, (std::vector<int64_t>{29199, 57671, 35302, 16564, 38298}));
}

TEST(SampleOrderTest, DependsOnEpochAndSeed) {
  const std::vector<int64_t> order = EpochOrder(7, 4, 100);
  EXPECT_NE(EpochOrder(7, 5, 100), order);
  EXPECT_NE(EpochOrder(8, 4, 100), order);
  // Epoch 3 of seed 8 would be the same if the generator were seeded with the sum of seed and
  // epoch.
  EXPECT_NE(EpochOrder(8, 3, 100), order);
}

TEST(SampleOrderTest, ASampleFallsIntoEachTenthOfTheEpochEquallyOften) {
  // Counts for each tenth of the epoch how often sample 0 falls into it. Each tenth should get 200
  // of 2000 epochs, with a standard deviation of 13.
  std::vector<int> tenth(10);
  for (int epoch = 1; epoch <= 2000; ++epoch) {
    const std::vector<int64_t> order = EpochOrder(1, epoch, 50);
    ++tenth[(std::find(order.begin(), order.end(), 0) - order.begin()) / 5];
  }
  for (const int times : tenth) EXPECT_NEAR(times, 200, 70);
}

}  // namespace
}  // namespace torchps
