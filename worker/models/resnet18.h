#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>

#include "worker/replicas/sync_batch_norm.h"

namespace torchps {

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
