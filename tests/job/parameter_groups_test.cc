#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/job/optimizer_fields.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

OptimizerSpec TwoGroups() {
  OptimizerSpec spec;
  spec.add_group()->set_pattern("*.bias");
  spec.add_group()->set_pattern("fc*");
  return spec;
}

Segment GetSegment(std::string name, int group, bool averaged = false) {
  Segment segment;
  segment.name = std::move(name);
  segment.shape = {2};
  segment.group = group;
  segment.averaged = averaged;
  return segment;
}

ModelLayout GetLayout(std::vector<Segment> segments) {
  absl::StatusOr<ModelLayout> layout = ModelLayout::Create(std::move(segments));
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

TEST(ParameterGroupsTest, TheFirstMatchingPatternWins) {
  EXPECT_EQ(GetGroup(TwoGroups(), "fc.bias"), 0);
  EXPECT_EQ(GetGroup(TwoGroups(), "fc.weight"), 1);
  EXPECT_EQ(GetGroup(TwoGroups(), "conv.weight"), -1);
  EXPECT_EQ(GetGroup(OptimizerSpec(), "fc.bias"), -1);
}

bool Matches(const std::string& pattern, const std::string& name) {
  OptimizerSpec spec;
  spec.add_group()->set_pattern(pattern);
  return GetGroup(spec, name) == 0;
}

TEST(ParameterGroupsTest, PatternsMatchTheWholeNameLikeShells) {
  EXPECT_TRUE(Matches("fc.bias", "fc.bias"));
  EXPECT_FALSE(Matches("fc.bias", "my.fc.bias"));
  EXPECT_FALSE(Matches("fc.bias", "FC.bias"));
  EXPECT_TRUE(Matches("layer.*.weight", "layer.1.conv.weight")) << "a star crosses dots";
  EXPECT_TRUE(Matches("*", ".hidden")) << "a leading dot as well";
  EXPECT_TRUE(Matches("*bn*.weight", "layer1.0.bn1.weight"));
  EXPECT_FALSE(Matches("*.bias", "layer.bias.0"));
  EXPECT_TRUE(Matches("bn?.weight", "bn1.weight"));
  EXPECT_FALSE(Matches("bn?.weight", "bn12.weight"));
  EXPECT_TRUE(Matches("layer[0-2].*", "layer1.weight"));
  EXPECT_FALSE(Matches("layer[0-2].*", "layer3.weight"));
  EXPECT_FALSE(Matches("a\\*", "a*")) << "a backslash is itself";
}

TEST(ParameterGroupsTest, MatchesAPatternOfManyStarsQuickly) {
  EXPECT_FALSE(Matches("*a*a*a*a*a*a*a*a*a*a*a*b", std::string(10000, 'a')));
}

TEST(ParameterGroupsTest, AcceptsALayoutWithTheRightGroups) {
  EXPECT_TRUE(
      CheckGroups(TwoGroups(), GetLayout({GetSegment("fc.bias", 0), GetSegment("fc.weight", 1),
                                          GetSegment("conv.weight", -1)}))
          .ok());
}

TEST(ParameterGroupsTest, ErrorNamesTheSegmentInAWrongGroup) {
  const absl::Status status =
      CheckGroups(TwoGroups(), GetLayout({GetSegment("fc.bias", 0), GetSegment("fc.weight", -1)}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'fc.weight' is in parameter group -1; by the patterns of "
                        "optimizer.group it belongs to 1"));
}

TEST(ParameterGroupsTest, ErrorNamesAGroupThatNoParameterMatches) {
  const ModelLayout both = GetLayout({GetSegment("fc.bias", 0), GetSegment("fc.weight", 1)});
  EXPECT_TRUE(CheckGroupsAreUsed(TwoGroups(), both).ok());
  EXPECT_TRUE(CheckGroupsAreUsed(OptimizerSpec(), both).ok());
  OptimizerSpec typo;
  typo.add_group()->set_pattern("fx.*");
  EXPECT_EQ(CheckGroupsAreUsed(typo, both),
            absl::InvalidArgumentError(
                "optimizer.group.0.pattern 'fx.*' matches no trained parameter outside the "
                "earlier groups; trained parameters: fc.bias, fc.weight"));
  OptimizerSpec hidden;
  hidden.add_group()->set_pattern("*");
  hidden.add_group()->set_pattern("fc.bias");
  EXPECT_THAT(std::string(CheckGroupsAreUsed(hidden, both).message()),
              HasSubstr("optimizer.group.1.pattern 'fc.bias'"));
}

TEST(ParameterGroupsTest, AveragedSegmentsHaveNoGroup) {
  EXPECT_TRUE(CheckGroups(TwoGroups(), GetLayout({GetSegment("fc.weight", 1),
                                                  GetSegment("fc.running_mean", -1, true)}))
                  .ok());
}

}  // namespace
}  // namespace torchps
