#pragma once

#include "absl/status/statusor.h"
#include "torchps/data/table/csv.h"
#include "torchps/data/table/csv_text.h"

namespace torchps {

// Returns true if the first line of a table is a header. If `columns.header` is set, returns its
// value. Otherwise the line is a header if:
//   - a model's schema uses names, and the line contains one;
//   - `columns` uses a name that the line contains;
//   - a feature in the line is text, and not missing;
//   - the line's numbers look like column names and not like the values below (see HeaderOfNumbers
//     in csv_header.cc).
//
// Returns the errors of CsvText::ForEachLine().
absl::StatusOr<bool> HasHeader(const CsvText& text, const CsvText::Fields& first_line,
                               const CsvColumns& columns);

}  // namespace torchps
