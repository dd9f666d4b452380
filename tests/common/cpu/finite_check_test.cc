#include "torchps/common/cpu/finite_check.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(FiniteCheckTest, FindsTheFirstNonfiniteElement) {
  for (const InstructionSet set : InstructionSets()) {
    SCOPED_TRACE(InstructionSetName(set));
    for (const int64_t count : {0, 1, 7, 64, 4095, 4096, 4097, 10000}) {
      std::vector<float> elements(count, std::numeric_limits<float>::max());
      EXPECT_EQ(FirstNonFinite(elements, set), -1) << count;
      for (const float bad : {std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), std::nanf("1")}) {
        for (int64_t at = 0; at < count; at += 1 + count / 7) {
          std::vector<float> damaged = elements;
          damaged[at] = damaged[count - 1] = bad;
          EXPECT_EQ(FirstNonFinite(damaged, set), at) << bad << " among " << count;
        }
      }
    }
  }
}

TEST(FiniteCheckTest, ReadsUnalignedAddresses) {
  const float elements[] = {1.0f, 2.0f, std::nanf("1")};
  for (size_t shift = 0; shift < sizeof(float); ++shift) {
    uint8_t bytes[sizeof(elements) + sizeof(float)];
    std::memcpy(bytes + shift, elements, sizeof(elements));
    EXPECT_EQ(FirstNonFinite(bytes + shift, 3), 2);
    EXPECT_EQ(FirstNonFinite(bytes + shift, 2), -1);
  }
}

TEST(FiniteCheckTest, SupportsBfloat16) {
  for (const InstructionSet set : InstructionSets()) {
    std::vector<uint16_t> numbers(5000, 0x7c01);  // 2.68e36
    const auto* const bytes = reinterpret_cast<const uint8_t*>(numbers.data());
    EXPECT_EQ(FirstNonFiniteBfloat16(bytes, 5000, set), -1);
    numbers[4998] = 0xff80;  // minus infinity
    EXPECT_EQ(FirstNonFiniteBfloat16(bytes, 5000, set), 4998);
    numbers[17] = 0x7fc0;  // not a number
    EXPECT_EQ(FirstNonFiniteBfloat16(bytes, 5000, set), 17);
  }
}

}  // namespace
}  // namespace torchps
