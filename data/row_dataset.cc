#include "data/row_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace torchps {

Standardization MeasureStandardization(const RowSet& table, absl::Span<const int64_t> rows) {
  const int64_t columns = table.columns.size();
  Standardization result{std::vector<double>(columns), std::vector<double>(columns)};
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t row : rows) sum += table.values[row * columns + c];
    const double mean = sum / rows.size();
    double square_sum = 0;
    for (int64_t row : rows) {
      const double distance = table.values[row * columns + c] - mean;
      square_sum += distance * distance;
    }
    const double deviation = std::sqrt(square_sum / rows.size());
    result.mean[c] = mean;
    // A column that is constant but for rounding would be blown up to noise.
    result.deviation[c] = deviation > 1e-12 * std::max(1.0, std::abs(mean)) ? deviation : 1.0;
  }
  return result;
}

RowDataset::RowDataset(const RowSet& table, absl::Span<const int64_t> rows,
                       const Standardization& standardization, int64_t classes)
    : features_(table.columns.size()), classes_(classes) {
  values_.reserve(rows.size() * features_);
  labels_.reserve(rows.size());
  for (int64_t row : rows) {
    for (int64_t c = 0; c < features_; ++c) {
      const double value = table.values[row * features_ + c];
      values_.push_back(
          static_cast<float>((value - standardization.mean[c]) / standardization.deviation[c]));
    }
    labels_.push_back(table.labels[row]);
  }
}

DataShape RowDataset::shape() const {
  DataShape shape;
  shape.features = features_;
  shape.classes = classes_;
  return shape;
}

absl::StatusOr<Batch> RowDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  Batch batch{torch::empty({rows, features_}, torch::kFloat32),
              torch::empty({rows}, torch::kInt64)};
  float* value = batch.input.data_ptr<float>();
  int64_t* label = batch.target.data_ptr<int64_t>();
  for (int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    value = std::copy_n(values_.data() + index * features_, features_, value);
    *label++ = labels_[index];
  }
  return batch;
}

}  // namespace torchps
