// Compares the server's optimizers with torch::optim on the same initial values and gradients.

#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/integration/torch_optimizer.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps::optimizer_equivalence_test {

constexpr int kSteps = 100;
constexpr int64_t kElements = 10007;
constexpr uint64_t kSeed = 7;
// Allows for rounding in another order over 100 steps.
constexpr double kTolerance = 1e-5;

class OptimizerEquivalenceTest : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(OptimizerEquivalenceTest, AHundredRandomGradientsMatchTorch) {
  const OptimizerSpec& spec = GetParam().spec;
  torch::manual_seed(kSeed);

  torch::Tensor theirs = torch::randn({kElements});
  torch::Tensor ours = theirs.clone();
  theirs.set_requires_grad(true);
  const std::unique_ptr<torch::optim::Optimizer> torch_optimizer = TorchOptimizer(spec, {theirs});
  ASSERT_NE(torch_optimizer, nullptr);

  absl::StatusOr<std::unique_ptr<Optimizer>> optimizer = MakeOptimizer(spec);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  std::vector<std::vector<float>> state((*optimizer)->slots(), std::vector<float>(kElements));
  std::vector<float*> slots;
  for (std::vector<float>& slot : state) slots.push_back(slot.data());
  (*optimizer)->InitializeSlots(slots, kElements);
  ApplyParameters parameters;
  parameters.learning_rate = spec.learning_rate();
  parameters.weight_decay = spec.weight_decay();

  const torch::Tensor start = ours.clone();
  for (int step = 1; step <= kSteps; ++step) {
    const torch::Tensor gradient = torch::randn({kElements});
    theirs.mutable_grad() = gradient.clone();
    torch_optimizer->step();
    parameters.step = step;
    (*optimizer)
        ->Apply(parameters, ours.data_ptr<float>(), slots, gradient.data_ptr<float>(), kElements);
  }

  const double difference = RelativeDifference(ours, theirs.detach());
  const double moved = RelativeDifference(ours, start);
  std::cout << GetParam().label << ": relative difference to torch::optim " << difference
            << " after " << kSteps << " steps (seed " << kSeed << "), which moved the values by "
            << moved << std::endl;
  EXPECT_LE(difference, kTolerance);
  EXPECT_GT(moved, 1e-3) << "the gradients moved the values too little for a meaningful comparison";
}

INSTANTIATE_TEST_SUITE_P(EveryOptimizer, OptimizerEquivalenceTest,
                         ::testing::ValuesIn(OptimizerCases()),
                         [](const ::testing::TestParamInfo<OptimizerCase>& info) {
                           return info.param.label;
                         });

}  // namespace torchps::optimizer_equivalence_test
