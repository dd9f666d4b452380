#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torchps/data/table/csv.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Returns the columns that a job names in the CSV file.
inline CsvColumns GetColumns(const CsvSpec& spec) {
  CsvColumns columns;
  columns.label = spec.label_column();
  columns.targets.assign(spec.target_column().begin(), spec.target_column().end());
  columns.ignored.assign(spec.ignore_column().begin(), spec.ignore_column().end());
  columns.categories.assign(spec.category_column().begin(), spec.category_column().end());
  columns.allow_unknown_category = spec.unknown_category();
  if (spec.has_header()) columns.header = spec.header();
  columns.missing = spec.missing() == COLUMN_MEAN ? CsvColumns::Missing::kKeep
                    : spec.missing() == DROP_ROW  ? CsvColumns::Missing::kDropRow
                                                  : CsvColumns::Missing::kRefuse;
  return columns;
}

inline constexpr int32_t kMaxClasses = 65536;  // limits the size of a model's last layer

// The classes of a column's distinct texts.
struct CsvClasses {
  std::vector<std::string> names;  // empty: classes are numbers
  std::vector<int32_t> of_text;    // the class of each text; -1: not a class
  std::string expected;            // the text after "expected" in the error message
};

// Assigns classes to `texts`, the distinct texts in `rows` rows. Whole numbers are used unchanged
// if at least half of the numbers from 0 to the largest occur. Other whole numbers become names, in
// numeric order. If any text is not a number, all texts are names, in byte order.
CsvClasses NumberClasses(const std::vector<std::string>& texts, int64_t rows);

// Finds the classes of `texts` among the model's classes.
CsvClasses FindClasses(const std::vector<std::string>& texts, const TableSchema& schema);

}  // namespace torchps
