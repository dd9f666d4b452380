#include "worker/models/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "worker/stages/placement.h"

namespace torchps {

LinearModel::LinearModel(int64_t features, int64_t classes) : linear_(features, classes) {
  register_module("linear", linear_);
}

torch::Tensor LinearModel::forward(const torch::Tensor& input) {
  return linear_->forward(input.flatten(1));
}

namespace {

// Some consecutive layers, registered under the numbers they have in the whole model.
struct MlpStage : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    if (is_first) x = x.flatten(1);
    for (size_t i = 0; i < linear.size(); ++i) {
      x = linear[i]->forward(x);
      if (!is_last || i + 1 < linear.size()) x = torch::relu(x);
    }
    return x;
  }

  bool is_first = false;
  bool is_last = false;
  std::vector<torch::nn::Linear> linear;
};

}  // namespace

Mlp::Mlp(int64_t features, const std::vector<int64_t>& hidden, int64_t classes) {
  int64_t width = features;
  for (int64_t next : hidden) {
    layers_->push_back(torch::nn::Linear(width, next));
    layers_->push_back(torch::nn::ReLU());
    width = next;
  }
  layers_->push_back(torch::nn::Linear(width, classes));
  register_module("layers", layers_);
}

torch::Tensor Mlp::forward(const torch::Tensor& input) {
  return layers_->forward(input.flatten(1));
}

Stages Mlp::InStages(int stages) const {
  TPS_CHECK(stages >= 1 && stages <= linear_layers(), "a stage has a layer");
  std::vector<torch::nn::Linear> linear;
  std::vector<int64_t> weights;
  for (int i = 0; i < linear_layers(); ++i) {
    linear.emplace_back(layers_->ptr<torch::nn::LinearImpl>(2 * i));
    weights.push_back(linear.back()->weight.numel() + linear.back()->bias.numel());
  }
  std::vector<size_t> firsts = EvenCut(weights, static_cast<size_t>(stages));
  firsts.push_back(linear.size());
  std::vector<ModelStage> cut;
  for (size_t stage = 0; stage + 1 < firsts.size(); ++stage) {
    const auto part = std::make_shared<MlpStage>();
    part->is_first = stage == 0;
    part->is_last = stage + 2 == firsts.size();
    const auto layers = part->register_module("layers", std::make_shared<torch::nn::Module>());
    for (size_t i = firsts[stage]; i < firsts[stage + 1]; ++i) {
      layers->register_module(std::to_string(2 * i), linear[i]);
      part->linear.push_back(linear[i]);
    }
    cut.emplace_back(part);
  }
  return Stages(std::move(cut));
}

}  // namespace torchps
