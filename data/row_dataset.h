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

// Over the rows numbered `rows` of `table`, in two passes.
Standardization MeasureStandardization(const RowSet& table, absl::Span<const int64_t> rows);

// Rows of numbers, standardised once; a batch is float32 [B, F] and int64 [B] classes. Immutable.
class RowDataset : public Dataset {
 public:
  // The rows numbered `rows` of `table`. REQUIRES: every label below `classes`.
  RowDataset(const RowSet& table, absl::Span<const int64_t> rows,
             const Standardization& standardization, int64_t classes);

  int64_t size() const override { return labels_.size(); }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;

 private:
  const int64_t features_;
  const int64_t classes_;
  std::vector<float> values_;
  std::vector<int32_t> labels_;
};

}  // namespace torchps
