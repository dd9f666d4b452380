#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "torchps/worker/replicas/sync_batch_norm.h"
#include "torchps/worker/stages/stages.h"

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

  // Returns the same layers as `stages` stages, cut so that the stage with the most parameters has
  // as few as possible. Tensors keep their names. REQUIRES: 1 <= stages <= linear_layers().
  Stages InStages(int stages) const;
  int linear_layers() const { return static_cast<int>(layers_->size() + 1) / 2; }

 private:
  torch::nn::Sequential layers_;
};

// Small convolutional network. Two blocks of (5x5 convolution with padding 2, batch norm, ReLU, 2x2
// max pooling) with 16 and 32 channels are followed by a linear layer. forward: float32 [B,
// channels, height, width] -> [B, classes].
class ConvNet : public torch::nn::Module {
 public:
  // REQUIRES: height >= 4 and width >= 4, because each side is halved twice.
  ConvNet(int64_t channels, int64_t height, int64_t width, int64_t classes);

  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Conv2d conv1_, conv2_;
  SyncBatchNorm2d bn1_, bn2_;
  torch::nn::Linear fc_;
};

// ResNet-18 (He et al. 2015) with the layout, names and initialization of torchvision's resnet18,
// so the state_dict names match: conv1, bn1, layer1.0.conv1, ..., layer4.1.bn2, fc.
//
// Images with a side below 64 pixels use the paper's CIFAR stem: a 3x3 convolution of stride 1
// without pooling. torchvision's stem (7x7 of stride 2, then 3x3 max pooling of stride 2) would
// leave one pixel of a 32 x 32 image. The CIFAR variant with 10 classes contains 11,173,962
// parameters. forward: float32 [B, channels, H, W] -> [B, classes].
class ResNet18 : public torch::nn::Module {
 public:
  ResNet18(int64_t channels, int64_t height, int64_t width, int64_t classes);

  torch::Tensor forward(const torch::Tensor& input);

 private:
  const bool small_stem_;
  torch::nn::Conv2d conv1_;
  SyncBatchNorm2d bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_, layer4_;
  torch::nn::Linear fc_;
};

}  // namespace torchps
