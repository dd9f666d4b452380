#include "tests/integration/torch_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace torchps {

std::unique_ptr<torch::optim::Optimizer> TorchOptimizer(const OptimizerSpec& spec,
                                                        std::vector<torch::Tensor> parameters) {
  const double rate = spec.learning_rate();
  const double decay = spec.weight_decay();
  switch (spec.kind_case()) {
    case OptimizerSpec::kSgd:
      return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                 torch::optim::SGDOptions(rate)
                                                     .momentum(spec.sgd().momentum())
                                                     .dampening(spec.sgd().dampening())
                                                     .nesterov(spec.sgd().nesterov())
                                                     .weight_decay(decay));
    case OptimizerSpec::kAdam:
      return std::make_unique<torch::optim::Adam>(
          std::move(parameters),
          torch::optim::AdamOptions(rate)
              .betas(std::make_tuple(spec.adam().beta1(), spec.adam().beta2()))
              .eps(spec.adam().epsilon())
              .weight_decay(decay));
    case OptimizerSpec::kAdamw:
      return std::make_unique<torch::optim::AdamW>(
          std::move(parameters),
          torch::optim::AdamWOptions(rate)
              .betas(std::make_tuple(spec.adamw().beta1(), spec.adamw().beta2()))
              .eps(spec.adamw().epsilon())
              .weight_decay(decay));
    case OptimizerSpec::kAdagrad:
      return std::make_unique<torch::optim::Adagrad>(
          std::move(parameters),
          torch::optim::AdagradOptions(rate)
              .lr_decay(spec.adagrad().lr_decay())
              .eps(spec.adagrad().epsilon())
              .initial_accumulator_value(spec.adagrad().initial_accumulator())
              .weight_decay(decay));
    case OptimizerSpec::kRmsprop:
      return std::make_unique<torch::optim::RMSprop>(std::move(parameters),
                                                     torch::optim::RMSpropOptions(rate)
                                                         .alpha(spec.rmsprop().alpha())
                                                         .eps(spec.rmsprop().epsilon())
                                                         .momentum(spec.rmsprop().momentum())
                                                         .centered(spec.rmsprop().centered())
                                                         .weight_decay(decay));
    case OptimizerSpec::KIND_NOT_SET:
      break;
  }
  ADD_FAILURE() << "no optimizer in " << spec.ShortDebugString();
  return nullptr;
}

std::vector<OptimizerCase> OptimizerCases() {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"Sgd", "sgd {} learning_rate: 0.1"},
      {"SgdDecay", "sgd {} learning_rate: 0.1 weight_decay: 0.01"},
      {"SgdMomentum",
       "sgd { momentum: 0.9 dampening: 0.1 } learning_rate: 0.05 weight_decay: 0.001"},
      {"SgdNesterov",
       "sgd { momentum: 0.9 nesterov: true } learning_rate: 0.05 weight_decay: 0.001"},
      {"SgdDelayed",
       "sgd { momentum: 0.9 nesterov: true momentum_at: DELAYED } learning_rate: 0.05 "
       "weight_decay: 0.001"},
      {"Adam", "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 } learning_rate: 0.001"},
      {"AdamDecay",
       "adam { beta1: 0.8 beta2: 0.99 epsilon: 1e-6 } learning_rate: 0.01 weight_decay: 0.1"},
      {"AdamW",
       "adamw { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 } learning_rate: 0.001 weight_decay: 0.1"},
      {"Adagrad", "adagrad { epsilon: 1e-10 } learning_rate: 0.01"},
      {"AdagradDecay",
       "adagrad { epsilon: 1e-8 lr_decay: 0.01 initial_accumulator: 0.1 }"
       " learning_rate: 0.05 weight_decay: 0.01"},
      {"RmsProp", "rmsprop { alpha: 0.99 epsilon: 1e-8 } learning_rate: 0.001"},
      {"RmsPropMomentum",
       "rmsprop { alpha: 0.9 epsilon: 1e-6 momentum: 0.9 }"
       " learning_rate: 0.001 weight_decay: 0.01"},
      {"RmsPropCentered",
       "rmsprop { alpha: 0.99 epsilon: 1e-4 momentum: 0.5 centered: true }"
       " learning_rate: 0.001 weight_decay: 0.01"},
  };
  std::vector<OptimizerCase> cases;
  for (const auto& [label, text] : texts) {
    cases.push_back({label, {}});
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &cases.back().spec)) << text;
  }
  return cases;
}

double RelativeDifference(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor exact_a = a.to(torch::kFloat64);
  const torch::Tensor exact_b = b.to(torch::kFloat64);
  return ((exact_a - exact_b).norm() / exact_b.norm()).item<double>();
}

std::vector<OptimizerCase> OptimizerCasesOfJobs() {
  std::vector<OptimizerCase> cases = OptimizerCases();
  const auto needs_local_steps = [](const OptimizerCase& one) {
    return one.spec.sgd().momentum_at() == SgdSpec::DELAYED;
  };
  cases.erase(std::remove_if(cases.begin(), cases.end(), needs_local_steps), cases.end());
  return cases;
}

}  // namespace torchps
