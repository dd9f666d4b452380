#include <array>
#include <cstdint>

#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

TEST(SplitMix64Test, MatchesThePublishedSequence) {
  uint64_t state = 0;
  EXPECT_EQ(SplitMix64(state), 0xe220a8397b1dcdafu);
  EXPECT_EQ(SplitMix64(state), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(SplitMix64(state), 0x06c45d188009454fu);
}

TEST(SplitMix64Test, MapsBitsToTheHalfOpenUnitInterval) {
  EXPECT_EQ(UnitDouble(0), 0.0);
  EXPECT_EQ(UnitDouble(uint64_t{1} << 63), 0.5);
  EXPECT_LT(UnitDouble(~uint64_t{0}), 1.0);
}

TEST(SplitMix64Test, DrawsUniformlyBelowTheBound) {
  uint64_t state = 7;
  SCOPED_TRACE(testing::Message() << "seed " << state);
  std::array<int, 6> count = {};
  for (int i = 0; i < 60000; ++i) ++count.at(UniformBelow(state, count.size()));
  // 10000 expected, standard deviation 91.
  for (const int times : count) EXPECT_NEAR(times, 10000, 500);
}

TEST(SplitMix64Test, DrawsOnlyZeroBelowOne) {
  uint64_t state = 7;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(UniformBelow(state, 1), 0u);
}

TEST(SplitMix64Test, DrawsBelowAHugeBound) {
  uint64_t state = 7;
  const uint64_t bound = 3 * (uint64_t{1} << 62);
  uint64_t largest = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = UniformBelow(state, bound);
    ASSERT_LT(value, bound);
    if (value > largest) largest = value;
  }
  EXPECT_GT(largest, bound / 10 * 9);
}

}  // namespace
}  // namespace torchps
