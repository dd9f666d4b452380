#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "data/table/row_set.h"

namespace torchps {

// Measures a table's preprocessing on the rows numbered `rows`, in two passes: mean and standard
// deviation of each column of numbers and of each target. Missing values (NaN) are left out. A
// constant column gets deviation 1, and a column without any value mean 0.
Preprocessing MeasurePreprocessing(const RowSet& table, absl::Span<const int64_t> rows);

// Rows of a table, encoded once. A batch is float32 [B, features] with int64 [B] classes, with
// float32 [B, K] numbers to predict in deviations from their mean, or without a target. Immutable.
class RowDataset : public Dataset {
 public:
  // The rows of `table` numbered `rows`. REQUIRES: `preprocessing` has the columns of `table`, and
  // every label is below its `classes`.
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
  std::vector<int32_t> labels_;       // where there are classes
  std::vector<float> target_values_;  // where there are targets
};

}  // namespace torchps
