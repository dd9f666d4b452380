#include "worker/models/convnet.h"

namespace torchps {
namespace {

constexpr int64_t kChannels1 = 16;
constexpr int64_t kChannels2 = 32;

torch::nn::Conv2dOptions Conv5x5(int64_t from, int64_t to) {
  return torch::nn::Conv2dOptions(from, to, /*kernel_size=*/5).padding(2);
}

}  // namespace

ConvNet::ConvNet(int64_t channels, int64_t height, int64_t width, int64_t classes)
    : conv1_(Conv5x5(channels, kChannels1)),
      conv2_(Conv5x5(kChannels1, kChannels2)),
      bn1_(kChannels1),
      bn2_(kChannels2),
      fc_(kChannels2 * (height / 4) * (width / 4), classes) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("conv2", conv2_);
  register_module("bn2", bn2_);
  register_module("fc", fc_);
}

torch::Tensor ConvNet::forward(const torch::Tensor& input) {
  torch::Tensor x = torch::max_pool2d(torch::relu(bn1_->forward(conv1_->forward(input))), 2);
  x = torch::max_pool2d(torch::relu(bn2_->forward(conv2_->forward(x))), 2);
  return fc_->forward(x.flatten(1));
}

}  // namespace torchps
