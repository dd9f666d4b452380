#include "worker/objective.h"

#include <torch/nn/functional/loss.h>

namespace torchps {
namespace {

int64_t CountRight(const torch::Tensor& output, const torch::Tensor& target) {
  return output.argmax(-1).eq(target).sum().item<int64_t>();
}

}  // namespace

Objective CrossEntropy() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nn::functional::cross_entropy(output, target);
          },
          CountRight};
}

Objective NextByteCrossEntropy() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nn::functional::cross_entropy(output.flatten(0, 1), target.flatten());
          },
          CountRight};
}

Objective MeanSquaredError() {
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            // mse_loss would broadcast {B} against {B, 1} into {B, B} and only warn.
            TORCH_CHECK(output.sizes() == target.sizes(), "mean squared error of an output shaped ",
                        output.sizes(), " and a target shaped ", target.sizes());
            return torch::nn::functional::mse_loss(output, target);
          },
          nullptr};
}

}  // namespace torchps
