#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

struct Inner : torch::nn::Module {
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(2))};
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(2, 2))};
};

struct NestedNet : torch::nn::Module {
  std::shared_ptr<Inner> inner = register_module("inner", std::make_shared<Inner>());
  torch::nn::Linear head{register_module("head", torch::nn::Linear(2, 2))};
};

// Keeps the normalization layer in evaluation mode even in training, as users do in Python.
struct Keeping : NestedNet {
  void train(bool on) override {
    torch::nn::Module::train(on);
    inner->norm->eval();
  }
};

TEST(ModuleModeTest, AnEvaluationLeavesEachLayerInItsMode) {
  NestedNet net;
  net.inner->norm->eval();
  {
    const EvaluationMode evaluation(net);
    EXPECT_FALSE(net.is_training());
    EXPECT_FALSE(net.head->is_training());
  }
  EXPECT_TRUE(net.is_training());
  EXPECT_TRUE(net.head->is_training());
  EXPECT_TRUE(net.inner->is_training());
  EXPECT_TRUE(net.inner->linear->is_training());
  EXPECT_FALSE(net.inner->norm->is_training());
  net.inner->eval();
  { const EvaluationMode evaluation(net); }
  EXPECT_TRUE(net.head->is_training());
  EXPECT_FALSE(net.inner->linear->is_training());
}

TEST(ModuleModeTest, BeginTrainingCallsTrainAndKeepsFrozenLayers) {
  Keeping keeping;
  ASSERT_TRUE(keeping.inner->norm->is_training()) << "train() was not called yet";
  BeginTraining(keeping);
  EXPECT_FALSE(keeping.inner->norm->is_training());
  EXPECT_TRUE(keeping.inner->linear->is_training());
  { const EvaluationMode evaluation(keeping); }
  EXPECT_FALSE(keeping.inner->norm->is_training());
  EXPECT_TRUE(keeping.inner->linear->is_training());

  NestedNet net;
  net.inner->norm->eval();
  BeginTraining(net);
  EXPECT_FALSE(net.inner->norm->is_training());
  EXPECT_TRUE(net.inner->linear->is_training());
  net.eval();
  BeginTraining(net);
  EXPECT_TRUE(net.inner->norm->is_training()) << "a whole module is not frozen";
}

}  // namespace
}  // namespace torchps
