#include "torchps/worker/inner_optimizer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/integration/torch_optimizer.h"
#include "torch/types.h"
#include "torch/utils.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWeights = 40;
constexpr int64_t kBiases = 9;
constexpr int kSteps = 20;

ModelLayout Layout() {
  Segment weights;
  weights.name = "layer.weight";
  weights.shape = {kWeights};
  Segment biases;
  biases.name = "layer.bias";
  biases.shape = {kBiases};
  return *ModelLayout::Create({weights, biases});
}

std::vector<torch::Tensor> Parameters() {
  torch::manual_seed(3);
  return {torch::randn({kWeights}).requires_grad_(), torch::randn({kBiases}).requires_grad_()};
}

OptimizerSpec Parse(const std::string& text) {
  OptimizerSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

class InnerOptimizerTest : public ::testing::TestWithParam<OptimizerCase> {};

// The servers' kernels implement the same optimizers, but share no code with InnerOptimizer.
TEST_P(InnerOptimizerTest, MatchesTheServersOptimizers) {
  const OptimizerSpec& spec = GetParam().spec;
  std::vector<torch::Tensor> parameters = Parameters();
  torch::Tensor values = parameters[0].detach().clone();
  const auto inner = InnerOptimizer::Create(spec, Layout(), parameters);
  ASSERT_TRUE(inner.ok()) << inner.status();
  const auto server = MakeOptimizer(spec);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::vector<float>> slots((*server)->slots(), std::vector<float>(kWeights));
  std::vector<float*> pointers;
  for (std::vector<float>& slot : slots) pointers.push_back(slot.data());
  (*server)->InitializeSlots(absl::MakeConstSpan(pointers), kWeights);

  for (int step = 1; step <= kSteps; ++step) {
    const double factor = 1.0 / step;
    for (torch::Tensor& parameter : parameters) {
      parameter.mutable_grad() = torch::randn(parameter.sizes());
    }
    ApplyParameters apply;
    apply.learning_rate = spec.learning_rate() * factor;
    apply.weight_decay = spec.weight_decay();
    apply.step = step;
    (*server)->Apply(apply, values.data_ptr<float>(), absl::MakeConstSpan(pointers),
                     parameters[0].grad().data_ptr<float>(), kWeights);
    (*inner)->Step(factor, /*absent=*/{});
  }
  EXPECT_LE(RelativeDifference(parameters[0].detach(), values), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(EveryOptimizer, InnerOptimizerTest, ::testing::ValuesIn(OptimizerCases()),
                         [](const ::testing::TestParamInfo<OptimizerCase>& info) {
                           return info.param.label;
                         });

TEST(InnerOptimizerTest, GroupsHaveTheirRateAndDecay) {
  std::vector<torch::Tensor> parameters = Parameters();
  const torch::Tensor weights = parameters[0].detach().clone();
  const torch::Tensor biases = parameters[1].detach().clone();
  const auto inner = InnerOptimizer::Create(
      Parse("sgd {} learning_rate: 0.5 weight_decay: 0.1 "
            "group { pattern: '*.bias' learning_rate_factor: 2 weight_decay: 0 }"),
      Layout(), parameters);
  ASSERT_TRUE(inner.ok()) << inner.status();
  for (torch::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::ones(parameter.sizes());
  }
  (*inner)->Step(/*rate_factor=*/0.5, /*absent=*/{});
  EXPECT_TRUE(torch::allclose(parameters[0].detach(), weights - 0.25 * (1 + 0.1 * weights)));
  EXPECT_TRUE(torch::allclose(parameters[1].detach(), biases - 0.5));
}

TEST(InnerOptimizerTest, AbsentParametersKeepTheirValues) {
  std::vector<torch::Tensor> parameters = Parameters();
  const torch::Tensor weights = parameters[0].detach().clone();
  const torch::Tensor biases = parameters[1].detach().clone();
  const auto inner =
      InnerOptimizer::Create(Parse("sgd { momentum: 0.9 } learning_rate: 1"), Layout(), parameters);
  ASSERT_TRUE(inner.ok()) << inner.status();
  for (torch::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::ones(parameter.sizes());
  }
  const ElementRun first = {0, kWeights};
  (*inner)->Step(1, absl::MakeConstSpan(&first, 1));
  EXPECT_TRUE(torch::equal(parameters[0].detach(), weights));
  EXPECT_TRUE(torch::allclose(parameters[1].detach(), biases - 1));
}

TEST(InnerOptimizerTest, RejectsAGroupPatternThatMatchesNoParameter) {
  const auto inner = InnerOptimizer::Create(
      Parse("sgd {} learning_rate: 1 group { pattern: '*.wieght' learning_rate_factor: 1 }"),
      Layout(), Parameters());
  EXPECT_EQ(inner.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(inner.status().message()), HasSubstr("*.wieght"));
}

}  // namespace
}  // namespace torchps
