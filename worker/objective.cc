#include "worker/objective.h"

#include <torch/nn/functional/loss.h>

namespace torchps {

Metric Accuracy() {
  return {"accuracy", [](const Pass& pass) {
            const torch::Tensor& target = pass.batch.target;
            const torch::Tensor right = pass.output().argmax(-1).eq(target).sum();
            return Metric::Part{right.item<double>(), static_cast<double>(target.numel())};
          }};
}

Objective CrossEntropy() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nn::functional::cross_entropy(output, target);
          },
          {Accuracy()}};
}

Objective NextByteCrossEntropy() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nn::functional::cross_entropy(output.flatten(0, 1), target.flatten());
          },
          {Accuracy()}};
}

Objective MeanSquaredError() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
    // mse_loss would broadcast {B} against {B, 1} into {B, B} and only warn.
    TORCH_CHECK(output.sizes() == target.sizes(), "mean squared error of an output shaped ",
                output.sizes(), " and a target shaped ", target.sizes());
    return torch::nn::functional::mse_loss(output, target);
  }};
}

}  // namespace torchps
