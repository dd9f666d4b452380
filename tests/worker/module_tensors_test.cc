#include "torchps/worker/module_tensors.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/linear.h"
#include "torch/types.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct NormNet : torch::nn::Module {
  NormNet()
      : first(register_module("first", torch::nn::Linear(3, 2))),
        norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
};

int GroupOfName(const std::string& name) { return name == "first.bias" ? 1 : -1; }

absl::StatusOr<ModuleTensors> Find(const torch::nn::Module& module) {
  return FindTensors(module, &GroupOfName);
}

std::vector<std::string> Names(const ModelLayout& layout) {
  std::vector<std::string> names;
  for (const Segment& segment : layout.segments()) names.push_back(segment.name);
  return names;
}

// Returns the message that refuses a module.
std::string Refusal(const torch::nn::Module& module) {
  const absl::Status status = Find(module).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(ModuleTensorsTest, ParametersPrecedeFloatBuffersAndIntegersAreExcluded) {
  NormNet net;
  const auto found = Find(net);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(Names(found->layout),
              ElementsAre("first.weight", "first.bias", "norm.weight", "norm.bias",
                          "norm.running_mean", "norm.running_var"));
  EXPECT_EQ(found->layout.trained_size(), 6 + 2 + 2 + 2);
  EXPECT_EQ(found->layout.averaged_size(), 4);
  EXPECT_EQ(found->layout.segments()[1].group, 1);
  EXPECT_EQ(found->layout.segments()[0].group, -1);
  ASSERT_EQ(found->tensors.size(), 6u);
  EXPECT_TRUE(found->tensors[1].is_same(net.first->bias));
  EXPECT_TRUE(found->tensors[5].is_same(net.norm->running_var));
}

TEST(ModuleTensorsTest, ComputingTheLayoutDoesNotChangeTheModule) {
  NormNet net;
  const torch::Tensor weight = net.first->weight;
  const void* const memory = weight.data_ptr();
  const auto layout = LayoutOfModule(net, &GroupOfName);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->fingerprint(), Find(net)->layout.fingerprint());
  EXPECT_EQ(net.first->weight.data_ptr(), memory);
  EXPECT_FALSE(net.first->weight.grad().defined());
}

TEST(ModuleTensorsTest, AFrozenParameterIsNotPartOfTheLayout) {
  NormNet net;
  net.first->weight.set_requires_grad(false);
  const auto found = Find(net);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(Names(found->layout).front(), "first.bias");
  EXPECT_TRUE(found->tensors.front().is_same(net.first->bias));
}

// The first stage starts no new block, because it begins where the layout begins.
TEST(ModuleTensorsTest, EachLaterStageStartsNewBlocks) {
  const auto stage = [] {
    return torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2));
  };
  const auto layout = LayoutOfModule(*Stages({stage(), stage()}), &GroupOfName);
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<std::string> starts;
  for (const Segment& segment : layout->segments()) {
    if (segment.starts_block) starts.push_back(segment.name);
  }
  EXPECT_THAT(starts, ElementsAre("1.0.weight", "1.1.running_mean"));
}

TEST(ModuleTensorsTest, AModuleWithoutStagesStartsNoNewBlocks) {
  const torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  const auto layout = LayoutOfModule(*net, &GroupOfName);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_THAT(Names(*layout), ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
  for (const Segment& segment : layout->segments()) EXPECT_FALSE(segment.starts_block);
}

TEST(ModuleTensorsTest, RefusesTwoTensorsOnOneMemory) {
  torch::nn::Linear first(2, 2);
  torch::nn::Linear second(2, 2);
  second->weight.set_data(first->weight.data());
  torch::nn::Module both;
  both.register_module("first", first);
  both.register_module("second", second);
  EXPECT_THAT(Refusal(both), HasSubstr("'first.weight' and 'second.weight'"));
}

// Makes two parameters of a table of six rows and six columns. One has `size` rows or columns from
// 0, the other has all from `from`.
torch::nn::Module TwoPartsOfATable(int64_t dimension, int64_t size, int64_t from) {
  const torch::Tensor table = torch::ones({6, 6});
  torch::nn::Module parts;
  parts.register_parameter("head", table.narrow(dimension, 0, size));
  parts.register_parameter("tail", table.narrow(dimension, from, 6 - from));
  return parts;
}

TEST(ModuleTensorsTest, RefusesTensorsThatShareSomeElements) {
  for (const int64_t dimension : {0, 1}) {
    EXPECT_THAT(Refusal(TwoPartsOfATable(dimension, /*size=*/4, /*from=*/3)),
                HasSubstr("'head' and 'tail' share a part of their memory"));
    // Both begin at the same element, and the second is longer.
    EXPECT_THAT(Refusal(TwoPartsOfATable(dimension, /*size=*/4, /*from=*/0)),
                HasSubstr("'head' and 'tail' share a part of their memory"));
  }
}

TEST(ModuleTensorsTest, DisjointPartsOfOneMemoryAreTwoTensors) {
  for (const int64_t dimension : {0, 1}) {
    const auto found = Find(TwoPartsOfATable(dimension, /*size=*/3, /*from=*/3));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(Names(found->layout), ElementsAre("head", "tail"));
  }
}

TEST(ModuleTensorsTest, AnExpandedColumnSharesItsElements) {
  const torch::Tensor table = torch::ones({6, 6});
  for (const int64_t from : {0, 1}) {
    torch::nn::Module parts;
    parts.register_parameter("wide", table.narrow(1, 0, 1).expand({6, 4}));
    parts.register_parameter("rest", table.narrow(1, from, 5));
    if (from == 0) {
      EXPECT_THAT(Refusal(parts), HasSubstr("'wide' and 'rest' share a part of their memory"));
      continue;
    }
    const auto found = Find(parts);
    EXPECT_TRUE(found.ok()) << found.status();
  }
}

TEST(ModuleTensorsTest, RefusesOtherTypesThanFloat32ByName) {
  NormNet net;
  net.norm->to(torch::kFloat64);
  EXPECT_THAT(Refusal(net), HasSubstr("'norm.weight' holds elements of type Double"));
}

TEST(ModuleTensorsTest, BuffersOfOtherTypesAreConstants) {
  NormNet net;
  int count = 0;
  for (const torch::ScalarType type : {torch::kFloat16, torch::kBFloat16, torch::kFloat64,
                                       torch::kComplexFloat, torch::kComplexDouble}) {
    net.register_buffer(absl::StrCat("constant", ++count), torch::ones({2}, type));
  }
  const auto found = Find(net);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->layout.averaged_size(), 4) << "the running statistics";
}

// Without this check, the module would train but could not be saved.
TEST(ModuleTensorsTest, RefusesAConstantThatFilesCannotHold) {
  NormNet net;
  net.register_buffer("edges", torch::eye(2, torch::kInt64).to_sparse());
  EXPECT_THAT(Refusal(net), HasSubstr("'edges' is sparse, and a model file holds dense numbers"));
  NormNet other;
  other.register_buffer("turn", torch::zeros({2}, torch::kComplexHalf));
  EXPECT_THAT(Refusal(other), HasSubstr("'turn' is ComplexHalf"));
}

TEST(ModuleTensorsTest, SuggestsViewAsRealForAComplexParameter) {
  NormNet net;
  net.register_parameter("filter", torch::ones({2}, torch::kComplexFloat));
  EXPECT_THAT(Refusal(net), HasSubstr("register its torch::view_as_real()"));
}

TEST(ModuleTensorsTest, RefusesASparseTensorByName) {
  torch::nn::Module net;
  net.register_parameter("table", torch::eye(2).to_sparse());
  EXPECT_THAT(Refusal(net), HasSubstr("'table' is sparse"));
}

TEST(ModuleTensorsTest, RefusesAFloatBufferWithInfinitiesByName) {
  NormNet net;
  net.register_buffer("mask", torch::full({2}, -std::numeric_limits<float>::infinity()));
  EXPECT_THAT(Refusal(net), HasSubstr("'mask'"));
}

TEST(ModuleTensorsTest, RefusesAModuleWithoutTrainableParameters) { Refusal(torch::nn::Module()); }

}  // namespace
}  // namespace torchps
