#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <cstdint>

#include "worker/stages/stages.h"

namespace torchps {

// A decoder-only transformer (Vaswani et al. 2017) on bytes, in GPT-2's arrangement: learned
// positions, layer norm before each part, a feed-forward part four times as wide with GELU, and the
// embedding used again as the output layer (Press and Wolf 2017), so it is one parameter.
// Position t sees the bytes 0 to t and no later one. No dropout: a worker's step depends on its
// values and its samples alone.
// forward: int64 [B, T] with T <= context -> [B, T, vocabulary], the next byte's logits.
class Transformer : public torch::nn::Module {
 public:
  struct Options {
    int64_t layers = 2;
    int64_t heads = 4;  // must divide width
    int64_t width = 128;
    int64_t context = 128;
    int64_t vocabulary = 256;
  };

  // REQUIRES: every option is at least 1, and heads divides width.
  explicit Transformer(const Options& options);

  torch::Tensor forward(const torch::Tensor& input);

  // The same modules as `stages` stages, cut so that the heaviest is as light as it can be. Their
  // tensors have the names that they have here. The embedding belongs to the first stage; the last
  // one, which needs it as the output layer, gets its values with each batch's activations, and its
  // gradient goes back with theirs: vocabulary * width numbers more from stage to stage. REQUIRES:
  // 1 <= stages <= layers().
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
