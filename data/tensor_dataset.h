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

// A dataset of tensors that are in memory: row i of each is sample i.
//
//   std::make_shared<torchps::TensorDataset>(inputs, targets)
//
// Immutable, as long as nobody writes to the tensors.
class TensorDataset final : public Dataset {
 public:
  // REQUIRES: all of the same size(0).
  TensorDataset(torch::Tensor input, torch::Tensor target,
                std::vector<torch::Tensor> more_inputs = {},
                std::vector<torch::Tensor> more_targets = {});

  int64_t size() const override { return samples_.input.size(0); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  // Of whole numbers only: others were computed by the program.
  uint32_t Fingerprint() const override;

 private:
  const Batch samples_;
};

// A dataset of torch::data whose get(index) gives an Example<Tensor, Tensor>, such as
// torch::data::datasets::MNIST or its map() with a transform. `source` is asked for samples one by
// one, each time anew, by the thread that trains.
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

// The indices as an int64 tensor, for index_select().
inline torch::Tensor IndexTensor(absl::Span<const int64_t> indices) {
  return torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kInt64);
}

}  // namespace torchps
