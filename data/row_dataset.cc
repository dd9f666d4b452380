#include "data/row_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "data/fingerprint.h"

namespace torchps {

Standardization MeasureStandardization(const RowSet& table, absl::Span<const int64_t> rows) {
  const int64_t columns = table.columns.size();
  Standardization result{std::vector<double>(columns), std::vector<double>(columns)};
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    int64_t present = 0;
    for (int64_t row : rows) {
      const double value = table.values[row * columns + c];
      if (std::isnan(value)) continue;
      sum += value;
      ++present;
    }
    const double count = static_cast<double>(std::max<int64_t>(present, 1));
    const double mean = sum / count;
    double square_sum = 0;
    for (int64_t row : rows) {
      const double value = table.values[row * columns + c];
      if (!std::isnan(value)) square_sum += (value - mean) * (value - mean);
    }
    const double deviation = std::sqrt(square_sum / count);
    result.mean[c] = mean;
    // A column that is constant but for rounding would be blown up to noise.
    result.deviation[c] = deviation > 1e-12 * std::max(1.0, std::abs(mean)) ? deviation : 1.0;
  }
  return result;
}

RowDataset::RowDataset(const RowSet& table, absl::Span<const int64_t> rows,
                       const Standardization& standardization, int64_t classes)
    : size_(rows.size()),
      features_(table.columns.size()),
      targets_(table.target_columns.size()),
      classes_(classes) {
  values_.reserve(size_ * features_);
  labels_.reserve(targets_ == 0 ? size_ : 0);
  target_values_.reserve(size_ * targets_);
  for (int64_t row : rows) {
    for (int64_t c = 0; c < features_; ++c) {
      const double value = table.values[row * features_ + c];
      const double distance = std::isnan(value) ? 0.0 : value - standardization.mean[c];
      values_.push_back(static_cast<float>(distance / standardization.deviation[c]));
    }
    const float* const target = table.targets.data() + row * targets_;
    target_values_.insert(target_values_.end(), target, target + targets_);
    if (targets_ == 0) labels_.push_back(table.labels[row]);
  }
}

DataShape RowDataset::shape() const {
  DataShape shape;
  shape.features = features_;
  shape.classes = classes_;
  shape.targets = targets_;
  return shape;
}

absl::StatusOr<Batch> RowDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  Batch batch{torch::empty({rows, features_}, torch::kFloat32),
              targets_ > 0 ? torch::empty({rows, targets_}, torch::kFloat32)
                           : torch::empty({rows}, torch::kInt64)};
  float* value = batch.input.data_ptr<float>();
  float* target = targets_ > 0 ? batch.target.data_ptr<float>() : nullptr;
  int64_t* label = targets_ > 0 ? nullptr : batch.target.data_ptr<int64_t>();
  for (int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    value = std::copy_n(values_.data() + index * features_, features_, value);
    if (targets_ > 0) {
      target = std::copy_n(target_values_.data() + index * targets_, targets_, target);
    } else {
      *label++ = labels_[index];
    }
  }
  return batch;
}

uint32_t RowDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kAllNumbers);
}

}  // namespace torchps
