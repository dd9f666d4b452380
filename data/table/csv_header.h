#pragma once

#include "absl/status/statusor.h"
#include "data/table/csv.h"
#include "data/table/csv_text.h"

namespace torchps {

// Finds out whether the first line of a table is a header, unless `columns.header` says so. It is
// one if:
// - a model's schema has names: the line has any of them;
// - `columns` gives a column by a name that the line has;
// - a feature in it is text, and not missing;
// - its numbers differ from the lines below as names do (see HeaderOfNumbers in csv_header.cc).
// Fails as CsvText::ForEachLine() does.
absl::StatusOr<bool> HasHeader(const CsvText& text, const CsvText::Fields& first_line,
                               const CsvColumns& columns);

}  // namespace torchps
