#include "worker/task.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <memory>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/objective.h"

namespace torchps {
namespace {

struct DoubleImpl : torch::nn::Module {
  DoubleImpl() { scale = register_parameter("scale", torch::full({1}, 2.0f)); }
  torch::Tensor forward(torch::Tensor input) { return input * scale; }
  torch::Tensor scale;
};
TORCH_MODULE(Double);

TEST(TaskTest, RunsAUsersModule) {
  const Task task{std::make_shared<DoubleImpl>(), CrossEntropy(), DataSource{}};
  EXPECT_TRUE(task.status().ok());
  EXPECT_EQ(task.Forward(torch::full({1}, 3.0f)).item<float>(), 6);
  EXPECT_EQ(task.module().parameters().size(), 1u);
}

TEST(TaskTest, RunsWhatTorchModuleMakesOfOne) {
  const Task task{Double(), CrossEntropy(), DataSource{}};
  EXPECT_EQ(task.Forward(torch::full({1}, 3.0f)).item<float>(), 6);
  const Task linear{torch::nn::Linear(2, 5), CrossEntropy(), DataSource{}};
  EXPECT_EQ(linear.Forward(torch::zeros({4, 2})).size(1), 5);
}

TEST(TaskTest, CopiesShareTheModule) {
  const Task task{Double(), CrossEntropy(), DataSource{}};
  const Task copy = task;
  torch::NoGradGuard no_grad;
  copy.module().parameters()[0].fill_(5);
  EXPECT_EQ(task.Forward(torch::full({1}, 3.0f)).item<float>(), 15);
}

TEST(TaskTest, RepeatsWhyThereIsNoData) {
  const absl::StatusOr<DataSource> missing = absl::NotFoundError("no such file");
  const Task task{Double(), CrossEntropy(), missing};
  EXPECT_EQ(task.status(), missing.status());
}

TEST(ObjectiveTest, CrossEntropyIsTheMeanOfMinusLogProbabilities) {
  const torch::Tensor output = torch::tensor({{0.0f, 0.0f}, {std::log(3.0f), 0.0f}});
  const torch::Tensor target = torch::tensor({1, 0}, torch::kInt64);
  const Objective objective = CrossEntropy();
  EXPECT_NEAR(objective.loss(output, target).item<float>(),
              (std::log(2.0f) + std::log(4.0f / 3)) / 2, 1e-6);
  EXPECT_EQ(objective.correct(output, target), 1);
}

TEST(ObjectiveTest, NextByteCrossEntropyCountsEveryPosition) {
  const torch::Tensor logits = torch::tensor(
      {{{0.0f, 1.0f}, {4.0f, 1.0f}, {0.0f, 1.0f}}, {{2.0f, 1.0f}, {0.0f, 1.0f}, {5.0f, 1.0f}}});
  const torch::Tensor target = torch::tensor({{1, 0, 0}, {0, 0, 0}}, torch::kInt64);
  const Objective objective = NextByteCrossEntropy();
  EXPECT_EQ(objective.correct(logits, target), 4);
  EXPECT_NEAR(objective.loss(logits, target).item<float>(),
              CrossEntropy().loss(logits.view({6, 2}), target.view({6})).item<float>(), 1e-6);
}

TEST(ObjectiveTest, MeanSquaredErrorRefusesToBroadcast) {
  const Objective objective = MeanSquaredError();
  EXPECT_FLOAT_EQ(
      objective.loss(torch::tensor({1.0f, 5.0f}), torch::tensor({0.0f, 2.0f})).item<float>(), 5);
  EXPECT_EQ(objective.correct, nullptr);
  EXPECT_THROW(objective.loss(torch::zeros({4, 1}), torch::zeros({4})), c10::Error);
}

}  // namespace
}  // namespace torchps
