#include "worker/models/resnet18.h"

#include <torch/nn/init.h>

#include <algorithm>

namespace torchps {
namespace {

constexpr int64_t kSmallImage = 64;

torch::nn::Conv2d Conv(int64_t from, int64_t to, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .bias(false));  // the following batch norm adds a bias
}

// conv, bn, relu, conv, bn, plus the input (through a 1x1 convolution if the shape changes), relu.
class BasicBlock : public torch::nn::Module {
 public:
  BasicBlock(int64_t from, int64_t to, int64_t stride)
      : conv1_(Conv(from, to, 3, stride)), bn1_(to), conv2_(Conv(to, to, 3, 1)), bn2_(to) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (stride != 1 || from != to) {
      downsample_ = register_module(
          "downsample", torch::nn::Sequential(Conv(from, to, 1, stride), SyncBatchNorm2d(to)));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = torch::relu(bn1_->forward(conv1_->forward(input)));
    x = bn2_->forward(conv2_->forward(x));
    return torch::relu(x + (downsample_.is_empty() ? input : downsample_->forward(input)));
  }

 private:
  torch::nn::Conv2d conv1_;
  SyncBatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  SyncBatchNorm2d bn2_;
  torch::nn::Sequential downsample_{nullptr};
};

torch::nn::Sequential Layer(int64_t from, int64_t to, int64_t stride) {
  return torch::nn::Sequential(BasicBlock(from, to, stride), BasicBlock(to, to, 1));
}

}  // namespace

ResNet18::ResNet18(int64_t channels, int64_t height, int64_t width, int64_t classes)
    : small_stem_(std::min(height, width) < kSmallImage),
      conv1_(small_stem_ ? Conv(channels, 64, 3, 1) : Conv(channels, 64, 7, 2)),
      bn1_(64),
      layer1_(Layer(64, 64, 1)),
      layer2_(Layer(64, 128, 2)),
      layer3_(Layer(128, 256, 2)),
      layer4_(Layer(256, 512, 2)),
      fc_(512, classes) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("layer1", layer1_);
  register_module("layer2", layer2_);
  register_module("layer3", layer3_);
  register_module("layer4", layer4_);
  register_module("fc", fc_);
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
}

torch::Tensor ResNet18::forward(const torch::Tensor& input) {
  torch::Tensor x = torch::relu(bn1_->forward(conv1_->forward(input)));
  if (!small_stem_) x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  x = layer1_->forward(x);
  x = layer2_->forward(x);
  x = layer3_->forward(x);
  x = layer4_->forward(x);
  return fc_->forward(x.mean({2, 3}));
}

}  // namespace torchps
