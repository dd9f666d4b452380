#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <cstdint>

#include "torchps/worker/stages/stages.h"

namespace torchps {

// Decoder-only transformer (Vaswani et al. 2017) on bytes, arranged like GPT-2: learned positions,
// layer norm before each part, and a feed-forward part four times as wide with GELU. The output
// layer shares the embedding's parameter (Press and Wolf 2017). Position t attends to bytes 0 to t
// only. There is no dropout, so a worker's step depends only on values and samples. forward: int64
// [B, T] with T <= context -> [B, T, vocabulary], the logits of the next byte.
class Transformer : public torch::nn::Module {
 public:
  struct Options {
    int64_t layers = 2;
    int64_t heads = 4;  // must divide width
    int64_t width = 128;
    int64_t context = 128;
    int64_t vocabulary = 256;
  };

  // REQUIRES: each option is at least 1, and heads divides width.
  explicit Transformer(const Options& options);

  torch::Tensor forward(const torch::Tensor& input);

  // Returns the same modules as `stages` stages, cut so that the stage with the most parameters has
  // as few as possible. Tensors keep their names. The embedding belongs to the first stage, but the
  // last stage uses it as the output layer. So each stage sends the embedding's values to the next
  // stage with each micro-batch's activations, and receives the gradients of both together. This
  // adds vocabulary * width numbers to each transfer between stages. REQUIRES: 1 <= stages <=
  // layers().
  Stages InStages(int stages) const;
  int layers() const { return static_cast<int>(blocks_->size()); }

 private:
  const int64_t vocabulary_;
  torch::nn::Embedding embedding_;
  torch::nn::Embedding position_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
};

}  // namespace torchps
