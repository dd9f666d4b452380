#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/data/dataset.h"
#include "torchps/data/table/csv.h"

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
  // Covers the values of integer tensors only. A program may have computed floating-point values,
  // and these may differ between machines.
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

// Measures a table's preprocessing on `rows` (row indices), in two passes: the mean and the
// standard deviation of each numeric column and each target. Ignores missing values (NaN). A
// constant column gets deviation 1, and a column without values gets mean 0.
Preprocessing MeasurePreprocessing(const RowSet& table, absl::Span<const int64_t> rows);

// Holds the encoded rows of a table. Batches are float32 [B, features] with int64 [B] classes, or
// with float32 [B, K] normalized targets, or without a target. Immutable.
class RowDataset : public Dataset {
 public:
  // Uses the rows of `table` at the indices `rows`. REQUIRES: `preprocessing` contains the columns
  // of `table`, and labels are below preprocessing.classes.
  RowDataset(const RowSet& table, absl::Span<const int64_t> rows,
             const Preprocessing& preprocessing);

  int64_t size() const override { return size_; }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  uint32_t Fingerprint() const override;

 private:
  const int64_t size_;
  DataShape shape_;
  const bool has_answers_;
  std::vector<float> values_;
  std::vector<int32_t> labels_;       // if there are classes
  std::vector<float> target_values_;  // if there are targets
};

}  // namespace torchps
