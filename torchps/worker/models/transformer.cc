#include "torchps/worker/models/transformer.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "torchps/common/check.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

// Explicit causal attention, because torch 1.13 lacks the fused function.
class Attention : public torch::nn::Module {
 public:
  Attention(int64_t width, int64_t heads)
      : heads_(heads), qkv_(width, 3 * width), output_(width, width) {
    register_module("qkv", qkv_);
    register_module("output", output_);
  }

  // [B, T, D] -> [B, T, D]. `future` is bool [T, T]; element (i, j) is true if position i must not
  // attend to position j.
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

// Returns the causal mask, bool [T, T]: element (i, j) is true if j > i.
torch::Tensor GetFuture(int64_t length, torch::Device device) {
  return torch::ones({length, length}, torch::TensorOptions(device).dtype(torch::kBool)).triu(1);
}

// Packs activations [B, T, D] and the embedding [V, D] into one tensor to send between stages. The
// embedding is appended to the batch as pages [T, D].
torch::Tensor Pack(const torch::Tensor& x, const torch::Tensor& embedding) {
  const int64_t length = x.size(1);
  const int64_t pages = (embedding.size(0) + length - 1) / length;
  const torch::Tensor padded =
      torch::constant_pad_nd(embedding, {0, 0, 0, pages * length - embedding.size(0)});
  return torch::cat({x, padded.view({pages, length, embedding.size(1)})});
}

// Reverses Pack().
std::pair<torch::Tensor, torch::Tensor> Unpack(const torch::Tensor& packed, int64_t vocabulary) {
  const int64_t length = packed.size(1);
  const int64_t batch = packed.size(0) - (vocabulary + length - 1) / length;
  TORCH_CHECK(batch >= 1, "the input from the previous stage contains no activations");
  return {packed.slice(0, 0, batch),
          packed.slice(0, batch).reshape({-1, packed.size(2)}).slice(0, 0, vocabulary)};
}

// Some consecutive layers of a transformer.
struct LayerStage : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x;
    torch::Tensor words;
    if (embedding) {
      words = embedding->weight;
      x = embedding->forward(input) + position->weight.slice(0, 0, input.size(1));
    } else {
      std::tie(x, words) = Unpack(input, vocabulary);
    }
    const torch::Tensor future = GetFuture(x.size(1), x.device());
    for (const std::shared_ptr<Block>& block : blocks) x = block->forward(x, future);
    return norm ? norm->forward(x).matmul(words.t()) : Pack(x, words);
  }

  int64_t vocabulary = 0;
  // Only in the first stage.
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Embedding position{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  // Only in the last stage.
  torch::nn::LayerNorm norm{nullptr};
};

int64_t GetElements(const torch::nn::Module& module) {
  int64_t elements = 0;
  for (const torch::Tensor& parameter : module.parameters()) elements += parameter.numel();
  return elements;
}

}  // namespace

Transformer::Transformer(const Options& options)
    : vocabulary_(options.vocabulary),
      embedding_(options.vocabulary, options.width),
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

  // GPT-2's initialization: weights that add to the residual stream start smaller in deeper models.
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
  const torch::Tensor future = GetFuture(length, input.device());
  torch::Tensor x = embedding_->forward(input) + position_->weight.slice(0, 0, length);
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x, future);
  return norm_->forward(x).matmul(embedding_->weight.t());
}

Stages Transformer::InStages(int stages) const {
  TPS_CHECK(stages >= 1 && stages <= layers(), "a stage has a layer");
  std::vector<int64_t> weights;
  for (const auto& block : *blocks_) weights.push_back(GetElements(*block));
  weights.front() += GetElements(*embedding_) + GetElements(*position_);
  weights.back() += GetElements(*norm_);
  std::vector<size_t> firsts = EvenCut(weights, static_cast<size_t>(stages));
  firsts.push_back(weights.size());
  std::vector<ModelStage> cut;
  for (size_t i = 0; i + 1 < firsts.size(); ++i) {
    const auto stage = std::make_shared<LayerStage>();
    stage->vocabulary = vocabulary_;
    if (i == 0) {
      stage->embedding = stage->register_module("embedding", embedding_);
      stage->position = stage->register_module("position", position_);
    }
    // Registers layers under their numbers in the whole model.
    const auto blocks = stage->register_module("blocks", std::make_shared<torch::nn::Module>());
    for (size_t layer = firsts[i]; layer < firsts[i + 1]; ++layer) {
      stage->blocks.push_back(blocks_->ptr<Block>(layer));
      blocks->register_module(std::to_string(layer), stage->blocks.back());
    }
    if (firsts[i + 1] == weights.size()) stage->norm = stage->register_module("norm", norm_);
    cut.emplace_back(stage);
  }
  return Stages(std::move(cut));
}

}  // namespace torchps
