#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>

#include "worker/replicas/sync_batch_norm.h"

namespace torchps {

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

}  // namespace torchps
