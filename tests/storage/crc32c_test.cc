#include "torchps/storage/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace torchps {
namespace {

TEST(Crc32cTest, MatchesRfc3720) {
  EXPECT_EQ(Crc32c(0, "123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(0, ""), 0u);
}

TEST(Crc32cTest, ContinuesFromAPartialSum) {
  std::string text(1000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  const absl::string_view all = text;
  for (const size_t cut : {0u, 1u, 7u, 64u, 999u, 1000u}) {
    const absl::string_view first = all.substr(0, cut);
    const absl::string_view second = all.substr(cut);
    EXPECT_EQ(Crc32c(Crc32c(0, first), second), Crc32c(0, all)) << cut;
    EXPECT_EQ(Crc32cCombine(Crc32c(0, first), Crc32c(0, second), second.size()), Crc32c(0, all))
        << cut;
  }
}

}  // namespace
}  // namespace torchps
