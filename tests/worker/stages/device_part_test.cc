#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "torchps/worker/stages/slot_members.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

// The host's values are 0, 1, ... 9. The last four are averaged.
torch::Tensor HostValues() { return torch::arange(10, torch::kFloat32); }

std::vector<float> Elements(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()};
}

DevicePart Part(ElementRun trained, ElementRun averaged) {
  return DevicePart(StagePart{torch::kCPU, trained, averaged});
}

TEST(DevicePartTest, TakesItsTwoRunsOfTheHostsValues) {
  const DevicePart part = Part({2, 5}, {7, 9});
  part.TakeValues(HostValues());
  EXPECT_THAT(Elements(part.values()), ElementsAre(2, 3, 4, 7, 8));
  EXPECT_THAT(Elements(part.gradients()), ElementsAre(0, 0, 0));
}

TEST(DevicePartTest, TakesTheWholeOfAnUncutModule) {
  const DevicePart part = Part({0, 6}, {6, 10});
  part.TakeValues(HostValues());
  EXPECT_TRUE(torch::equal(part.values(), HostValues()));
}

TEST(DevicePartTest, AStageMayLackEitherKindOfElements) {
  const DevicePart trained = Part({2, 5}, {0, 0});
  trained.TakeValues(HostValues());
  EXPECT_THAT(Elements(trained.values()), ElementsAre(2, 3, 4));

  const DevicePart averaged = Part({0, 0}, {7, 9});
  averaged.TakeValues(HostValues());
  EXPECT_THAT(Elements(averaged.values()), ElementsAre(7, 8));

  const DevicePart none = Part({0, 0}, {0, 0});
  none.TakeValues(HostValues());
  EXPECT_EQ(none.values().numel(), 0);
}

TEST(DevicePartTest, WritesOnlyItsOwnElements) {
  const DevicePart part = Part({2, 5}, {7, 9});
  part.values().copy_(torch::full({5}, -1.0f));
  part.gradients().copy_(torch::full({3}, -2.0f));

  const torch::Tensor averaged = HostValues();
  part.GiveAveraged(averaged);
  EXPECT_THAT(Elements(averaged), ElementsAre(0, 1, 2, 3, 4, 5, 6, -1, -1, 9));

  const torch::Tensor values = HostValues();
  part.GiveValues(values);
  EXPECT_THAT(Elements(values), ElementsAre(0, 1, -1, -1, -1, 5, 6, -1, -1, 9));

  const torch::Tensor gradients = torch::zeros({6});
  part.GiveGradients(gradients);
  EXPECT_THAT(Elements(gradients), ElementsAre(0, 0, -2, -2, -2, 0));
}

TEST(DevicePartTest, FindsWhereItsTensorsBegin) {
  const DevicePart part = Part({2, 5}, {7, 9});
  Segment weight;
  weight.offset = 3;
  EXPECT_EQ(part.GetBegin(weight), 1);
  Segment mean;
  mean.averaged = true;
  mean.offset = 8;
  EXPECT_EQ(part.GetBegin(mean), 4);
}

}  // namespace
}  // namespace torchps
