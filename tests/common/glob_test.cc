#include "common/glob.h"

#include <string>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(GlobTest, APatternWithoutWildcardsMatchesItselfOnly) {
  EXPECT_TRUE(GlobMatches("fc.bias", "fc.bias"));
  EXPECT_FALSE(GlobMatches("fc.bias", "fc.biases"));
  EXPECT_FALSE(GlobMatches("fc.bias", "my.fc.bias"));
  EXPECT_FALSE(GlobMatches("fc.bias", "FC.bias"));
  EXPECT_FALSE(GlobMatches("", "a"));
  EXPECT_TRUE(GlobMatches("", ""));
}

TEST(GlobTest, AStarIsAnyRunEvenAnEmptyOneAndCrossesDots) {
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("*", "layer.0.weight"));
  EXPECT_TRUE(GlobMatches("*.bias", "layer.0.bias"));
  EXPECT_FALSE(GlobMatches("*.bias", "bias"));
  EXPECT_FALSE(GlobMatches("*.bias", "layer.bias.0"));
  EXPECT_TRUE(GlobMatches("layer.*.weight", "layer.1.conv.weight"));
  EXPECT_TRUE(GlobMatches("layer*", "layer"));
  EXPECT_TRUE(GlobMatches("***", "x"));
}

TEST(GlobTest, AQuestionMarkIsExactlyOneCharacter) {
  EXPECT_TRUE(GlobMatches("bn?.weight", "bn1.weight"));
  EXPECT_FALSE(GlobMatches("bn?.weight", "bn.weight"));
  EXPECT_FALSE(GlobMatches("bn?.weight", "bn12.weight"));
  EXPECT_TRUE(GlobMatches("?*", "a"));
  EXPECT_FALSE(GlobMatches("?*", ""));
}

TEST(GlobTest, ALaterStarTakesBackWhatItMatchedTooEarly) {
  EXPECT_TRUE(GlobMatches("*ab", "aab"));
  EXPECT_TRUE(GlobMatches("*a*b", "aaacb"));
  EXPECT_TRUE(GlobMatches("*bn*.weight", "layer1.0.bn1.weight"));
  EXPECT_FALSE(GlobMatches("*a*b*c", "abbbbb"));
}

TEST(GlobTest, ManyStarsOnALongNameEndQuickly) {
  const std::string name(10000, 'a');
  EXPECT_FALSE(GlobMatches("*a*a*a*a*a*a*a*a*a*a*a*b", name));
}

}  // namespace
}  // namespace torchps
