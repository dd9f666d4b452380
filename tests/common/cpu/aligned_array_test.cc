#include "torchps/common/cpu/aligned_array.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(AlignedArrayTest, ANewArrayIsZeroAndAlignedToACacheLine) {
  for (const size_t size : {0, 1, 15, 16, 17, 100000}) {
    AlignedArray<float> array(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % kLineBytes, 0u) << size;
    EXPECT_EQ(array.size(), size);
    EXPECT_EQ(std::count(array.begin(), array.end(), 0.0f), static_cast<int64_t>(size));
    std::fill(array.begin(), array.end(), 1.0f);
  }
}

TEST(AlignedArrayTest, AMoveKeepsTheAddress) {
  AlignedArray<uint8_t> array(3);
  array.data()[2] = 7;
  const uint8_t* const where = array.data();
  const AlignedArray<uint8_t> moved = std::move(array);
  EXPECT_EQ(moved.data(), where);
  EXPECT_EQ(moved.end()[-1], 7);
}

}  // namespace
}  // namespace torchps
