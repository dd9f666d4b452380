#include "torchps/data/tensor_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "torchps/common/check.h"
#include "torchps/data/dataset.h"

namespace torchps {

TensorDataset::TensorDataset(torch::Tensor input, torch::Tensor target,
                             std::vector<torch::Tensor> more_inputs,
                             std::vector<torch::Tensor> more_targets)
    : samples_{std::move(input), std::move(target), std::move(more_inputs),
               std::move(more_targets)} {
  const auto fits = [this](const torch::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == samples_.input.size(0);
  };
  TPS_CHECK(fits(samples_.input) && (!samples_.target.defined() || fits(samples_.target)),
            "a TensorDataset's tensors have a row for each sample");
  for (const auto* more : {&samples_.more_inputs, &samples_.more_targets}) {
    for (const torch::Tensor& tensor : *more) {
      TPS_CHECK(fits(tensor), "a TensorDataset's tensors have a row for each sample");
    }
  }
}

absl::StatusOr<Batch> TensorDataset::Get(absl::Span<const int64_t> indices) const {
  const torch::Tensor rows = IndexTensor(indices);
  Batch batch{samples_.input.index_select(0, rows), {}};
  if (samples_.target.defined()) batch.target = samples_.target.index_select(0, rows);
  for (const torch::Tensor& tensor : samples_.more_inputs) {
    batch.more_inputs.push_back(tensor.index_select(0, rows));
  }
  for (const torch::Tensor& tensor : samples_.more_targets) {
    batch.more_targets.push_back(tensor.index_select(0, rows));
  }
  return batch;
}

uint32_t TensorDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kWholeNumbers);
}

namespace {

struct Moments {
  double mean = 0;
  double deviation = 1;
};

// Measures column `c` of a table with `columns` columns.
template <typename Rows>
Moments MeasureColumn(const std::vector<double>& values, size_t columns, size_t c,
                      const Rows& rows) {
  double sum = 0;
  int64_t present = 0;
  for (const int64_t row : rows) {
    const double value = values[row * columns + c];
    if (std::isnan(value)) continue;
    sum += value;
    ++present;
  }
  const double count = static_cast<double>(std::max<int64_t>(present, 1));
  const double mean = sum / count;
  double square_sum = 0;
  for (const int64_t row : rows) {
    const double value = values[row * columns + c];
    if (!std::isnan(value)) square_sum += (value - mean) * (value - mean);
  }
  const double deviation = std::sqrt(square_sum / count);
  // By rounding, the values of a constant column may differ from the mean. Dividing by such a
  // deviation would turn rounding errors into noise.
  return {mean, deviation > 1e-12 * std::max(1.0, std::abs(mean)) ? deviation : 1.0};
}

}  // namespace

Preprocessing MeasurePreprocessing(const RowSet& table, absl::Span<const int64_t> rows) {
  Preprocessing result;
  result.columns = table.columns;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const bool is_number = table.columns[c].categories.empty();
    const Moments moments =
        is_number ? MeasureColumn(table.values, table.columns.size(), c, rows) : Moments();
    result.input_mean.push_back(moments.mean);
    result.input_deviation.push_back(moments.deviation);
  }
  result.target_columns = table.target_columns;
  for (size_t c = 0; c < table.target_columns.size(); ++c) {
    const Moments moments = MeasureColumn(table.targets, table.target_columns.size(), c, rows);
    result.target_mean.push_back(moments.mean);
    result.target_deviation.push_back(moments.deviation);
  }
  result.class_names = table.class_names;
  result.label_column = table.label_column;
  if (!table.labels.empty()) {
    // At least two classes, because a model needs a choice.
    const int64_t largest = *std::max_element(table.labels.begin(), table.labels.end());
    result.classes =
        std::max<int64_t>({largest + 1, 2, static_cast<int64_t>(table.class_names.size())});
  }
  return result;
}

RowDataset::RowDataset(const RowSet& table, absl::Span<const int64_t> rows,
                       const Preprocessing& preprocessing)
    : size_(rows.size()), has_answers_(table.has_answers) {
  const int64_t columns = table.columns.size();
  shape_.features = preprocessing.features();
  shape_.classes = preprocessing.classes;
  shape_.targets = preprocessing.target_columns.size();
  values_.resize(size_ * shape_.features);
  float* value = values_.data();
  for (const int64_t row : rows) {
    preprocessing.EncodeRow(table.values.data() + row * columns, value);
    value += shape_.features;
    if (!has_answers_) continue;
    if (shape_.targets == 0) labels_.push_back(table.labels[row]);
    for (int64_t c = 0; c < shape_.targets; ++c) {
      double target = table.targets[row * shape_.targets + c];
      if (!preprocessing.target_mean.empty()) {
        target = (target - preprocessing.target_mean[c]) / preprocessing.target_deviation[c];
      }
      target_values_.push_back(static_cast<float>(target));
    }
  }
}

DataShape RowDataset::shape() const { return shape_; }

absl::StatusOr<Batch> RowDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  const int64_t targets = shape_.targets;
  Batch batch;
  batch.input = torch::empty({rows, shape_.features}, torch::kFloat32);
  if (has_answers_) {
    batch.target = targets > 0 ? torch::empty({rows, targets}, torch::kFloat32)
                               : torch::empty({rows}, torch::kInt64);
  }
  float* value = batch.input.data_ptr<float>();
  float* target = has_answers_ && targets > 0 ? batch.target.data_ptr<float>() : nullptr;
  int64_t* label = has_answers_ && targets == 0 ? batch.target.data_ptr<int64_t>() : nullptr;
  for (const int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    value = std::copy_n(values_.data() + index * shape_.features, shape_.features, value);
    if (target != nullptr) {
      target = std::copy_n(target_values_.data() + index * targets, targets, target);
    }
    if (label != nullptr) *label++ = labels_[index];
  }
  return batch;
}

uint32_t RowDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kAllNumbers);
}

}  // namespace torchps
