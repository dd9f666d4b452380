#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/table/csv.h"

namespace torchps {

// The purpose of each column of a CSV file. Columns are numbered from 0.
struct CsvLayout {
  std::vector<std::string> names;  // of all columns; empty strings without a header
  std::vector<size_t> features;    // in the order of RowSet::columns
  std::vector<bool> is_category;   // of each feature
  std::optional<size_t> label;
  std::vector<size_t> targets;
  std::vector<size_t> left_out;

  bool has_answers() const { return label.has_value() || !targets.empty(); }

  // A column's number, and its name where it has one.
  std::string Describe(size_t column) const;
};

// Lays out the columns of a table whose first line is `first_line`, for training, or for the model
// of `columns.schema`. INVALID_ARGUMENT: a column that `columns` or the model names is not there,
// is there twice, or has two purposes; no feature is left.
absl::StatusOr<CsvLayout> FindLayout(const std::vector<std::string>& first_line, bool has_header,
                                     const CsvColumns& columns);

// Whether the model of a schema knows its columns by name.
bool HasNames(const TableSchema& schema);

// Returns a list for a message, of at most `shown` names.
std::string ListNames(const std::vector<std::string>& names, size_t shown);

}  // namespace torchps
