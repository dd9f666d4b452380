#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "worker/stages/stages.h"

namespace torchps {

// A multi-layer perceptron: linear layers with ReLU between them.
// forward: float32 [B, ...] of `features` numbers a sample -> [B, classes].
class Mlp : public torch::nn::Module {
 public:
  // `hidden`: the widths between input and output, in order; none makes it linear.
  Mlp(int64_t features, const std::vector<int64_t>& hidden, int64_t classes);

  torch::Tensor forward(const torch::Tensor& input);

  // The same layers as `stages` stages, cut so that the heaviest is as light as it can be. Their
  // tensors have the names that they have here. REQUIRES: 1 <= stages <= linear_layers().
  Stages InStages(int stages) const;
  int linear_layers() const { return static_cast<int>(layers_->size() + 1) / 2; }

 private:
  torch::nn::Sequential layers_;
};

}  // namespace torchps
