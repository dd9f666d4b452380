#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace torchps {

// A multi-layer perceptron: linear layers with ReLU between them.
// forward: float32 [B, ...] of `features` numbers a sample -> [B, classes].
class Mlp : public torch::nn::Module {
 public:
  // `hidden`: the widths between input and output, in order; none makes it linear.
  Mlp(int64_t features, const std::vector<int64_t>& hidden, int64_t classes);

  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Sequential layers_;
};

}  // namespace torchps
