#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/data/table/csv.h"

namespace torchps {

// Limits on quotations in messages.
inline constexpr size_t kShownNames = 20;
inline constexpr size_t kShownCharacters = 40;

// The purpose of each column of a CSV file. Columns are numbered from 0.
struct CsvLayout {
  std::vector<std::string> names;  // by column; empty strings without a header
  std::vector<size_t> features;    // in the order of RowSet::columns
  std::vector<bool> is_category;   // by feature
  std::optional<size_t> label;
  std::vector<size_t> targets;
  std::vector<size_t> left_out;

  bool has_answers() const { return label.has_value() || !targets.empty(); }

  // Returns a column's number, and the name if there is one.
  std::string Describe(size_t column) const;
};

// Determines the columns of a table that begins with `first_line`, for training or for the model in
// `columns.schema`. INVALID_ARGUMENT: a column that `columns` or the model names is missing, is a
// duplicate, or serves two purposes; or there are no features.
absl::StatusOr<CsvLayout> FindLayout(const std::vector<std::string>& first_line, bool has_header,
                                     const CsvColumns& columns);

// True if the model of a schema knows the columns by name.
bool HasNames(const TableSchema& schema);

// Returns a list for a message, of at most `shown` names.
std::string ListNames(const std::vector<std::string>& names, size_t shown);

}  // namespace torchps
