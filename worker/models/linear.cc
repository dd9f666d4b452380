#include "worker/models/linear.h"

namespace torchps {

LinearModel::LinearModel(int64_t features, int64_t classes) : linear_(features, classes) {
  register_module("linear", linear_);
}

torch::Tensor LinearModel::forward(const torch::Tensor& input) {
  return linear_->forward(input.flatten(1));
}

}  // namespace torchps
