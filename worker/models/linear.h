#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>

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

}  // namespace torchps
