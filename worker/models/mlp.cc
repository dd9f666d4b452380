#include "worker/models/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

namespace torchps {

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

}  // namespace torchps
