#include "torchps/worker/gradient/gradient_watch.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/worker/flat_model.h"

namespace torchps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// Two layers of 4 x 4 weights and 4 biases: segments of 16, 4, 16 and 4 elements.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(4, 4));
    last = register_module("last", torch::nn::Linear(4, 4));
  }
  torch::Tensor forward(torch::Tensor x) { return last->forward(first->forward(x)); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

// Blocks of 16 elements, the smallest size that a job may set. Block 0 is first.weight. Block 1
// holds first.bias and the head of last.weight. Block 2 holds the tail and last.bias.
class GradientWatchTest : public ::testing::Test {
 protected:
  GradientWatchTest() {
    auto model = FlatModel::Create(net_, torch::kCPU, [](const std::string&) { return -1; });
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    map_ = *BlockMap::Create(model_->layout(), 16 * sizeof(float), /*servers=*/1);
    watch_ = std::make_unique<GradientWatch>(model_->layout(), map_, model_->parameters());
  }

  // Runs one backward pass. Returns the blocks that the watch reported, in order.
  std::vector<BlockId> Pass(const torch::Tensor& loss) {
    std::vector<BlockId> told;
    model_->ZeroGradients();
    watch_->Arm([&told](BlockId block) { told.push_back(block); });
    loss.backward();
    disarmed_ = watch_->Disarm();
    return told;
  }
  std::vector<BlockId> Pass() { return Pass(net_.forward(torch::ones({2, 4})).sum()); }

  Net net_;
  std::unique_ptr<FlatModel> model_;
  BlockMap map_;
  std::unique_ptr<GradientWatch> watch_;
  absl::Status disarmed_;
};

TEST_F(GradientWatchTest, TheFirstPassReportsNoBlock) {
  EXPECT_THAT(Pass(), IsEmpty());
  EXPECT_TRUE(disarmed_.ok()) << disarmed_;
}

TEST_F(GradientWatchTest, TheLastLayersBlocksAreReadyFirst) {
  Pass();
  const std::vector<BlockId> told = Pass();
  EXPECT_TRUE(disarmed_.ok()) << disarmed_;
  ASSERT_THAT(told, UnorderedElementsAre(0, 1, 2));
  EXPECT_EQ(told[0], 2u) << "the other blocks hold parameters of the first layer";
}

TEST_F(GradientWatchTest, AReportedBlockHasItsFinalGradient) {
  Pass();
  torch::manual_seed(5);
  const torch::Tensor input = torch::randn({3, 4});
  std::vector<float> when_told(model_->gradients().size());
  model_->ZeroGradients();
  watch_->Arm([&](BlockId id) {
    const BlockRange& block = map_.blocks()[id];
    const auto now = model_->gradients().subspan(block.offset, block.length);
    std::copy(now.begin(), now.end(), when_told.begin() + block.offset);
  });
  net_.forward(input).pow(2).sum().backward();
  ASSERT_TRUE(watch_->Disarm().ok());
  EXPECT_THAT(when_told, ::testing::ElementsAreArray(model_->gradients()));
}

TEST_F(GradientWatchTest, OnlyTheLastPassMakesBlocksReady) {
  Pass();
  std::vector<BlockId> told;
  model_->ZeroGradients();
  watch_->Arm([&told](BlockId block) { told.push_back(block); }, /*passes=*/3);
  for (int pass = 1; pass <= 3; ++pass) {
    EXPECT_THAT(told, IsEmpty()) << "before pass " << pass;
    net_.forward(torch::ones({2, 4})).sum().backward();
  }
  EXPECT_THAT(told, UnorderedElementsAre(0, 1, 2));
  net_.forward(torch::ones({2, 4})).sum().backward();
  EXPECT_TRUE(absl::IsFailedPrecondition(watch_->Disarm())) << "one pass more than announced";
}

TEST_F(GradientWatchTest, ABlockWithAParameterWithoutAGradientIsNotReported) {
  Pass();
  // Only the last layer gets a gradient in this pass.
  const auto told = Pass(net_.last->forward(torch::ones({2, 4})).sum());
  EXPECT_TRUE(disarmed_.ok()) << disarmed_;
  EXPECT_THAT(told, UnorderedElementsAre(2));
}

TEST_F(GradientWatchTest, ParametersUsedTwiceInOneGraphCountOnce) {
  Pass();
  const torch::Tensor twice = net_.last->forward(net_.forward(torch::ones({2, 4})));
  EXPECT_THAT(Pass(twice.sum()), UnorderedElementsAre(0, 1, 2));
  EXPECT_TRUE(disarmed_.ok()) << disarmed_;
}

TEST_F(GradientWatchTest, AReplacedGradientTensorMakesNoBlockReady) {
  Pass();
  net_.last->bias.mutable_grad() = torch::zeros({4});
  EXPECT_THAT(Pass(), Not(Contains(2)));
}

TEST_F(GradientWatchTest, GraphsAddingAGradientTwiceReportNothingEarly) {
  // A nested backward() call adds a gradient twice in one graph. To the hooks, two backward() calls
  // look like that.
  model_->ZeroGradients();
  watch_->Arm([](BlockId) {});
  net_.forward(torch::ones({2, 4})).sum().backward();
  net_.forward(torch::ones({2, 4})).sum().backward();
  EXPECT_TRUE(watch_->Disarm().ok());
  EXPECT_THAT(Pass(), IsEmpty());
}

TEST_F(GradientWatchTest, RejectsAGradientForABlockReportedEarlier) {
  Pass();
  model_->ZeroGradients();
  watch_->Arm([](BlockId) {});
  net_.last->forward(torch::ones({2, 4})).sum().backward();
  net_.last->forward(torch::ones({2, 4})).sum().backward();
  const absl::Status status = watch_->Disarm();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("'last."));
}

TEST_F(GradientWatchTest, ParametersThatNoPassReachedAreAbsent) {
  model_->ZeroGradients();
  watch_->BeginStep();
  EXPECT_THAT(watch_->Absent(model_->gradients()), ElementsAre(ElementRun{0, 40}));
  // The watch is not armed, as in each pass of a step except the last.
  net_.last->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_THAT(watch_->Absent(model_->gradients()), ElementsAre(ElementRun{0, 20}));
  (net_.first->bias.sum() * 0).backward();
  EXPECT_THAT(watch_->Absent(model_->gradients()), ElementsAre(ElementRun{0, 16}))
      << "a zero gradient is not absent";
  watch_->BeginStep();
  model_->ZeroGradients();
  Pass();
  EXPECT_THAT(watch_->Absent(model_->gradients()), IsEmpty());
}

TEST_F(GradientWatchTest, AManualGradientIsNotAbsent) {
  model_->ZeroGradients();
  watch_->BeginStep();
  net_.first->bias.mutable_grad()[2] = 1.0f;
  EXPECT_THAT(watch_->Absent(model_->gradients()),
              ElementsAre(ElementRun{0, 16}, ElementRun{20, 40}));
}

TEST_F(GradientWatchTest, AFrozenParameterIsAbsent) {
  net_.first->weight.set_requires_grad(false);
  Pass();
  watch_->BeginStep();
  Pass();
  EXPECT_THAT(watch_->Absent(model_->gradients()), ElementsAre(ElementRun{0, 16}));
}

TEST_F(GradientWatchTest, HooksDoNothingAfterDestruction) {
  Pass();
  const torch::Tensor loss = net_.forward(torch::ones({2, 4})).sum();
  model_->ZeroGradients();
  watch_.reset();
  loss.backward();
  EXPECT_NE(model_->gradients()[0], 0);
}

TEST_F(GradientWatchTest, ReportsBlocksAfterTheValuesWereSwapped) {
  Pass();
  const auto next = model_->next_values();
  std::fill(next.begin(), next.end(), 0.5f);
  ASSERT_TRUE(model_->UseNextValues().ok());
  EXPECT_THAT(Pass(), UnorderedElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace torchps
