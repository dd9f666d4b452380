#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace torchps {

// What training minimises and what evaluation counts. Plain functions of a model's output and a
// batch's target, both on the same device; free of state, so copies may be used by several threads.
struct Objective {
  // A scalar that backward() starts from: the mean over the batch's samples, so that losses and
  // gradients of batches of different sizes can be averaged with the sample counts as weights.
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> loss;

  // How many of target.numel() predictions are right: accuracy is the sum of this over the sum of
  // target.numel(). Null where there is no such thing (regression).
  std::function<int64_t(const torch::Tensor& output, const torch::Tensor& target)> correct;
};

// Classification: output [B, V] are unnormalised log probabilities, target int64 [B] the classes.
Objective CrossEntropy();

// The same at every position: output [B, T, V], target int64 [B, T], loss the mean over B * T.
Objective NextByteCrossEntropy();

// Regression: output and target of one shape, loss the mean over all elements. No accuracy.
Objective MeanSquaredError();

}  // namespace torchps
