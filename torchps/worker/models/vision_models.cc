#include "torchps/worker/models/vision_models.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "torchps/common/check.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {

LinearModel::LinearModel(int64_t features, int64_t classes) : linear_(features, classes) {
  register_module("linear", linear_);
}

torch::Tensor LinearModel::forward(const torch::Tensor& input) {
  return linear_->forward(input.flatten(1));
}

namespace {

// A stage of an Mlp: consecutive layers, registered under their numbers in the whole model.
struct MlpStage : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    if (is_first) x = x.flatten(1);
    for (size_t i = 0; i < linear.size(); ++i) {
      x = linear[i]->forward(x);
      if (!is_last || i + 1 < linear.size()) x = torch::relu(x);
    }
    return x;
  }

  bool is_first = false;
  bool is_last = false;
  std::vector<torch::nn::Linear> linear;
};

}  // namespace

Mlp::Mlp(int64_t features, const std::vector<int64_t>& hidden, int64_t classes) {
  int64_t width = features;
  for (int64_t next : hidden) {
    layers_->push_back(torch::nn::Linear(width, next));
    layers_->push_back(torch::nn::ReLU());
    width = next;
  }
  layers_->push_back(torch::nn::Linear(width, classes));
  register_module("layers", layers_);
}

torch::Tensor Mlp::forward(const torch::Tensor& input) {
  return layers_->forward(input.flatten(1));
}

Stages Mlp::InStages(int stages) const {
  TPS_CHECK(stages >= 1 && stages <= linear_layers(), "a stage has a layer");
  std::vector<torch::nn::Linear> linear;
  std::vector<int64_t> weights;
  for (int i = 0; i < linear_layers(); ++i) {
    linear.emplace_back(layers_->ptr<torch::nn::LinearImpl>(2 * i));
    weights.push_back(linear.back()->weight.numel() + linear.back()->bias.numel());
  }
  std::vector<size_t> firsts = EvenCut(weights, static_cast<size_t>(stages));
  firsts.push_back(linear.size());
  std::vector<ModelStage> cut;
  for (size_t stage = 0; stage + 1 < firsts.size(); ++stage) {
    const auto part = std::make_shared<MlpStage>();
    part->is_first = stage == 0;
    part->is_last = stage + 2 == firsts.size();
    const auto layers = part->register_module("layers", std::make_shared<torch::nn::Module>());
    for (size_t i = firsts[stage]; i < firsts[stage + 1]; ++i) {
      layers->register_module(std::to_string(2 * i), linear[i]);
      part->linear.push_back(linear[i]);
    }
    cut.emplace_back(part);
  }
  return Stages(std::move(cut));
}

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
