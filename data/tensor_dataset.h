#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"

namespace torchps {

// Provides samples from tensors in memory: row i of each tensor is sample i.
//
//   std::make_shared<torchps::TensorDataset>(inputs, targets)
//
// Immutable, unless the caller writes to the tensors.
class TensorDataset final : public Dataset {
 public:
  // REQUIRES: all tensors have the same size(0).
  TensorDataset(torch::Tensor input, torch::Tensor target,
                std::vector<torch::Tensor> more_inputs = {},
                std::vector<torch::Tensor> more_targets = {});

  int64_t size() const override { return samples_.input.size(0); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  // Covers whole numbers only, because other numbers may be computed by the program.
  uint32_t Fingerprint() const override;

 private:
  const Batch samples_;
};

// Wraps a torch::data dataset for which get(index) returns an Example<Tensor, Tensor>, such as
// torch::data::datasets::MNIST or the result of map() with a transform. The training thread
// requests samples from `source` one at a time, without caching.
template <typename Source>
std::shared_ptr<const Dataset> FromTorchData(Source source) {
  class Adaptor final : public Dataset {
   public:
    explicit Adaptor(Source source) : source_(std::move(source)) {}
    int64_t size() const override { return static_cast<int64_t>(*source_.size()); }
    absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
      std::vector<torch::Tensor> inputs, targets;
      for (const int64_t index : indices) {
        auto example = source_.get_batch({static_cast<size_t>(index)});
        inputs.push_back(example.at(0).data);
        targets.push_back(example.at(0).target);
      }
      return Batch{torch::stack(inputs), torch::stack(targets)};
    }

   private:
    // torch::data's get() is not const.
    mutable Source source_;
  };
  return std::make_shared<Adaptor>(std::move(source));
}

// Returns the indices as an int64 tensor, for index_select().
inline torch::Tensor IndexTensor(absl::Span<const int64_t> indices) {
  return torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
}

}  // namespace torchps
