#include "torchps/data/text/generated_text.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

TEST(GeneratedTextTest, TheTextHasTheSameBytesOnEveryMachine) {
  Fnv1a hash;
  hash.AddString(GenerateText(10'000, 1));
  EXPECT_EQ(hash.value(), 0xfed184b3a806c3ecu);
}

TEST(GeneratedTextTest, HasTheRequestedLengthAndFollowsTheSeed) {
  const std::string text = GenerateText(50'000, 1);
  EXPECT_GE(text.size(), 50'000u);
  EXPECT_LT(text.size(), 50'300u);
  EXPECT_NE(text, GenerateText(50'000, 2));
  for (char character : text) {
    EXPECT_TRUE(absl::ascii_isprint(character) || character == '\n');
  }
}

TEST(GeneratedTextTest, ContainsCorrectSums) {
  const std::string text = GenerateText(50'000, 7);
  int sums = 0;
  for (absl::string_view sentence : absl::StrSplit(text, absl::ByAnyChar(".\n"))) {
    const std::vector<absl::string_view> words = absl::StrSplit(sentence, ' ', absl::SkipEmpty());
    int a, b, sum;
    if (words.size() != 5 || words[3] != "make") continue;
    ASSERT_TRUE(absl::SimpleAtoi(words[0], &a) && absl::SimpleAtoi(words[2], &b) &&
                absl::SimpleAtoi(words[4], &sum))
        << sentence;
    EXPECT_EQ(a + b, sum);
    ++sums;
  }
  EXPECT_GT(sums, 50);
}

}  // namespace
}  // namespace torchps
