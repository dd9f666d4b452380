#include "worker/models/transformer.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/check.h"

namespace torchps {
namespace {

// Causal attention written out: the fused call is not in torch 1.13.
class Attention : public torch::nn::Module {
 public:
  Attention(int64_t width, int64_t heads)
      : heads_(heads), qkv_(width, 3 * width), output_(width, width) {
    register_module("qkv", qkv_);
    register_module("output", output_);
  }

  // `future` is bool [T, T], true where a position must not look. [B, T, D] -> [B, T, D].
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& future) {
    const int64_t batch = input.size(0);
    const int64_t length = input.size(1);
    const int64_t head_width = input.size(2) / heads_;
    // [3, B, heads, T, head_width]
    const torch::Tensor qkv =
        qkv_->forward(input).view({batch, length, 3, heads_, head_width}).permute({2, 0, 3, 1, 4});
    torch::Tensor score = qkv[0].matmul(qkv[1].transpose(-2, -1)) / std::sqrt(head_width);
    score = score.masked_fill(future, -std::numeric_limits<float>::infinity());
    const torch::Tensor mixed = score.softmax(-1).matmul(qkv[2]);
    return output_->forward(mixed.transpose(1, 2).reshape(input.sizes()));
  }

 private:
  const int64_t heads_;
  torch::nn::Linear qkv_;
  torch::nn::Linear output_;
};

class Block : public torch::nn::Module {
 public:
  Block(int64_t width, int64_t heads)
      : norm1_(torch::nn::LayerNormOptions({width})),
        attention_(std::make_shared<Attention>(width, heads)),
        norm2_(torch::nn::LayerNormOptions({width})),
        widen_(width, 4 * width),
        narrow_(4 * width, width) {
    register_module("norm1", norm1_);
    register_module("attention", attention_);
    register_module("norm2", norm2_);
    register_module("widen", widen_);
    register_module("narrow", narrow_);
  }

  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& future) {
    const torch::Tensor x = input + attention_->forward(norm1_->forward(input), future);
    return x + narrow_->forward(torch::gelu(widen_->forward(norm2_->forward(x))));
  }

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear widen_;
  torch::nn::Linear narrow_;
};

// bool [T, T], true where a position must not look: at what comes after it.
torch::Tensor FutureOf(int64_t length, torch::Device device) {
  return torch::ones({length, length}, torch::TensorOptions(device).dtype(torch::kBool)).triu(1);
}

// Some of a transformer's layers.
struct LayerStage : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    const int64_t length = x.size(1);
    if (embedding) x = embedding->forward(x) + position->weight.slice(0, 0, length);
    const torch::Tensor future = FutureOf(length, x.device());
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, future);
    return norm ? norm->forward(x).matmul(output.t()) : x;
  }

  // Of the first stage.
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Embedding position{nullptr};
  torch::nn::ModuleList blocks;
  // Of the last one.
  torch::nn::LayerNorm norm{nullptr};
  torch::Tensor output;
};

}  // namespace

Transformer::Transformer(const Options& options)
    : embedding_(options.vocabulary, options.width),
      position_(options.context, options.width),
      norm_(torch::nn::LayerNormOptions({options.width})) {
  TPS_CHECK(options.heads >= 1 && options.width % options.heads == 0, "heads divide the width");
  register_module("embedding", embedding_);
  register_module("position", position_);
  for (int64_t i = 0; i < options.layers; ++i) {
    blocks_->push_back(std::make_shared<Block>(options.width, options.heads));
  }
  register_module("blocks", blocks_);
  register_module("norm", norm_);

  // GPT-2's initial values: what adds into the residual stream starts smaller, the deeper it is.
  const double residual_scale = 1.0 / std::sqrt(2.0 * options.layers);
  for (auto& named : named_parameters()) {
    torch::Tensor& value = named.value();
    const bool residual = absl::EndsWith(named.key(), "output.weight") ||
                          absl::EndsWith(named.key(), "narrow.weight");
    if (value.dim() == 2)
      torch::nn::init::normal_(value, 0, residual ? 0.02 * residual_scale : 0.02);
    if (absl::EndsWith(named.key(), "bias")) torch::nn::init::zeros_(value);
  }
}

torch::Tensor Transformer::forward(const torch::Tensor& input) {
  const int64_t length = input.size(1);
  const torch::Tensor future = FutureOf(length, input.device());
  torch::Tensor x = embedding_->forward(input) + position_->weight.slice(0, 0, length);
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x, future);
  return norm_->forward(x).matmul(embedding_->weight.t());
}

Stages Transformer::InStages(int stages) const {
  const auto layers = static_cast<int>(blocks_->size());
  TPS_CHECK(stages >= 1 && stages <= layers, "a stage has a layer");
  std::vector<ModelStage> cut;
  for (int i = 0; i < stages; ++i) {
    const auto stage = std::make_shared<LayerStage>();
    if (i == 0) {
      stage->embedding = stage->register_module("embedding", embedding_);
      stage->position = stage->register_module("position", position_);
    }
    for (int layer = layers * i / stages; layer < layers * (i + 1) / stages; ++layer) {
      stage->blocks->push_back(blocks_->ptr(layer));
    }
    stage->register_module("blocks", stage->blocks);
    if (i == stages - 1) {
      stage->norm = stage->register_module("norm", norm_);
      stage->output = stage->register_parameter("output", embedding_->weight);
    }
    cut.emplace_back(stage);
  }
  return Stages(std::move(cut));
}

}  // namespace torchps
