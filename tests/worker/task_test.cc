#include "torchps/worker/task.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "torchps/worker/objective.h"

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
  EXPECT_EQ(task.Forward({torch::full({1}, 3.0f), {}}).output().item<float>(), 6);
  EXPECT_EQ(task.module().parameters().size(), 1u);
}

TEST(TaskTest, RunsAModuleWrappedByTorchModule) {
  const Task task{Double(), CrossEntropy(), DataSource{}};
  EXPECT_EQ(task.Forward({torch::full({1}, 3.0f), {}}).output().item<float>(), 6);
  const Task linear{torch::nn::Linear(2, 5), CrossEntropy(), DataSource{}};
  EXPECT_EQ(linear.Forward({torch::zeros({4, 2}), {}}).output().size(1), 5);
}

TEST(TaskTest, CopiesShareTheModule) {
  const Task task{Double(), CrossEntropy(), DataSource{}};
  const Task copy = task;
  torch::NoGradGuard no_grad;
  copy.module().parameters()[0].fill_(5);
  EXPECT_EQ(task.Forward({torch::full({1}, 3.0f), {}}).output().item<float>(), 15);
}

TEST(TaskTest, RepeatsTheReasonForMissingData) {
  const absl::StatusOr<DataSource> missing = absl::NotFoundError("no such file");
  const Task task{Double(), CrossEntropy(), missing};
  EXPECT_EQ(task.status(), missing.status());
}

// Returns the pass of a module that returns `output`.
Pass GetPass(const torch::Tensor& output, const torch::Tensor& target) {
  return {nullptr, {output}, {torch::Tensor(), target}};
}

TEST(TaskTest, RunsAModuleWithSeveralInputsAndOutputs) {
  struct Pair : torch::nn::Module {
    std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor a, torch::Tensor b) {
      return {a + b, a - b};
    }
  };
  const Task task{std::make_shared<Pair>(),
                  [](const Pass& pass) { return (pass.outputs[0] * pass.outputs[1]).mean(); },
                  DataSource{}};
  const Batch batch{torch::full({1}, 3.0f), {}, {torch::full({1}, 2.0f)}};
  const Pass pass = task.Forward(batch, /*step=*/7);
  ASSERT_EQ(pass.outputs.size(), 2u);
  EXPECT_EQ(task.objective().loss(pass).item<float>(), 5);
  EXPECT_EQ(pass.step, 7);
  EXPECT_EQ(pass.module, &task.module());
  // A batch with fewer inputs than the module needs is an error.
  EXPECT_THROW(task.Forward({torch::full({1}, 3.0f), {}}), c10::Error);
}

TEST(TaskTest, ForwardMayHaveDefaultArguments) {
  struct Masked : torch::nn::Module {
    torch::Tensor forward(torch::Tensor input, torch::Tensor mask = {}) {
      return mask.defined() ? input * mask : input;
    }
  };
  const Task task{std::make_shared<Masked>(), MeanSquaredError(), DataSource{}};
  const torch::Tensor input = torch::full({1}, 3.0f);
  EXPECT_EQ(task.Forward({input, {}}).output().item<float>(), 3);
  EXPECT_EQ(task.Forward({input, {}, {torch::zeros({1})}}).output().item<float>(), 0);
}

TEST(ObjectiveTest, CrossEntropyIsTheMeanNegativeLogProbability) {
  const torch::Tensor output = torch::tensor({{0.0f, 0.0f}, {std::log(3.0f), 0.0f}});
  const Pass pass = GetPass(output, torch::tensor({1, 0}, torch::kInt64));
  const Objective objective = CrossEntropy();
  EXPECT_NEAR(objective.loss(pass).item<float>(), (std::log(2.0f) + std::log(4.0f / 3)) / 2, 1e-6);
  ASSERT_EQ(objective.metrics.size(), 1u);
  EXPECT_EQ(objective.metrics[0].name, "accuracy");
  EXPECT_EQ(objective.metrics[0].measure(pass).sum, 1);
  EXPECT_EQ(objective.metrics[0].measure(pass).weight, 2);
}

TEST(ObjectiveTest, NextByteCrossEntropyCountsEachPosition) {
  const torch::Tensor logits = torch::tensor(
      {{{0.0f, 1.0f}, {4.0f, 1.0f}, {0.0f, 1.0f}}, {{2.0f, 1.0f}, {0.0f, 1.0f}, {5.0f, 1.0f}}});
  const torch::Tensor target = torch::tensor({{1, 0, 0}, {0, 0, 0}}, torch::kInt64);
  const Objective objective = NextByteCrossEntropy();
  EXPECT_EQ(objective.metrics[0].measure(GetPass(logits, target)).sum, 4);
  EXPECT_EQ(objective.metrics[0].measure(GetPass(logits, target)).weight, 6);
  EXPECT_NEAR(objective.loss(GetPass(logits, target)).item<float>(),
              CrossEntropy().loss(GetPass(logits.view({6, 2}), target.view({6}))).item<float>(),
              1e-6);
}

TEST(ObjectiveTest, MeanSquaredErrorRefusesToBroadcast) {
  const Objective objective = MeanSquaredError();
  const Pass pass = GetPass(torch::tensor({1.0f, 5.0f}), torch::tensor({0.0f, 2.0f}));
  EXPECT_FLOAT_EQ(objective.loss(pass).item<float>(), 5);
  EXPECT_THROW(objective.loss(GetPass(torch::zeros({4, 1}), torch::zeros({4}))), c10::Error);
}

}  // namespace
}  // namespace torchps
