#include "gtest/gtest.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

TEST(ParameterGroupsTest, WithoutGroupsTheDefaultsApply) {
  OptimizerSpec spec;
  spec.set_learning_rate(0.1);
  spec.set_weight_decay(0.01);
  const ParameterGroups groups(spec);
  EXPECT_EQ(groups.size(), 0);
  EXPECT_DOUBLE_EQ(groups.Of(-1).learning_rate, 0.1);
  EXPECT_DOUBLE_EQ(groups.Of(-1).weight_decay, 0.01);
}

TEST(ParameterGroupsTest, AGroupChangesOnlyTheFieldsItSets) {
  OptimizerSpec spec;
  spec.set_learning_rate(0.1);
  spec.set_weight_decay(0.01);
  spec.add_group()->set_weight_decay(0.0);
  spec.add_group()->set_learning_rate_factor(0.5);
  const ParameterGroups groups(spec);
  EXPECT_EQ(groups.size(), 2);
  EXPECT_DOUBLE_EQ(groups.Of(0).learning_rate, 0.1);
  EXPECT_DOUBLE_EQ(groups.Of(0).weight_decay, 0.0);
  EXPECT_DOUBLE_EQ(groups.Of(1).learning_rate, 0.05);
  EXPECT_DOUBLE_EQ(groups.Of(1).weight_decay, 0.01);
}

TEST(ParameterGroupsTest, AFactorOfZeroFreezesItsGroup) {
  OptimizerSpec spec;
  spec.set_learning_rate(0.1);
  spec.add_group()->set_learning_rate_factor(0.0);
  EXPECT_EQ(ParameterGroups(spec).Of(0).learning_rate, 0.0);
}

}  // namespace
}  // namespace torchps
