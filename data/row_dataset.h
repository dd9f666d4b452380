#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "data/table/row_set.h"

namespace torchps {

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
