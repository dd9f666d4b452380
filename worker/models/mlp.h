#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "worker/stages/stages.h"

namespace torchps {

// Softmax regression: one linear layer on the flattened sample. forward: float32 [B, ...] with
// `features` numbers per sample -> [B, classes].
class LinearModel : public torch::nn::Module {
 public:
  LinearModel(int64_t features, int64_t classes);

  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Linear linear_;
};

// Multi-layer perceptron: linear layers with ReLU in between. forward: float32 [B, ...] with
// `features` numbers per sample -> [B, classes].
class Mlp : public torch::nn::Module {
 public:
  // `hidden` lists the widths between input and output. If it is empty, the model is linear.
  Mlp(int64_t features, const std::vector<int64_t>& hidden, int64_t classes);

  torch::Tensor forward(const torch::Tensor& input);

  // Returns the same layers as `stages` stages, cut to minimize the heaviest stage. Tensors keep
  // their names. REQUIRES: 1 <= stages <= linear_layers().
  Stages InStages(int stages) const;
  int linear_layers() const { return static_cast<int>(layers_->size() + 1) / 2; }

 private:
  torch::nn::Sequential layers_;
};

}  // namespace torchps
