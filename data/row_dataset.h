#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "data/table/row_set.h"

namespace torchps {

// Mean and standard deviation of each column over some rows of a table.
struct Standardization {
  std::vector<double> mean;
  std::vector<double> deviation;  // 1 for a constant column
};

// Over the rows numbered `rows` of `table`, in two passes. A missing value (NaN) counts for
// neither; a column that has none but missing ones there gets mean 0 and deviation 1.
Standardization MeasureStandardization(const RowSet& table, absl::Span<const int64_t> rows);

// Rows of numbers, standardised once; a missing value is its column's mean, which is 0 then. A
// batch is float32 [B, F] with int64 [B] classes, or with the K numbers to predict, float32 [B, K],
// as they are. Immutable.
class RowDataset : public Dataset {
 public:
  // The rows numbered `rows` of `table`. `classes` is 0 where numbers are predicted. REQUIRES:
  // every label below `classes`.
  RowDataset(const RowSet& table, absl::Span<const int64_t> rows,
             const Standardization& standardization, int64_t classes);

  int64_t size() const override { return size_; }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  uint32_t Fingerprint() const override;

 private:
  const int64_t size_;
  const int64_t features_;
  const int64_t targets_;
  const int64_t classes_;
  std::vector<float> values_;
  std::vector<int32_t> labels_;       // where there are classes
  std::vector<float> target_values_;  // where there are targets
};

}  // namespace torchps
