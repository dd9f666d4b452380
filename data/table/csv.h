#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/table/row_set.h"

namespace torchps {

// What is what in a CSV file.
struct CsvColumns {
  // The column of the class: a name of the header, or a column's number from 0; empty is the last.
  std::string label;
  // In place of a class: the columns of the numbers to predict, in this order, named likewise.
  std::vector<std::string> targets = {};

  // What becomes of a missing value: a field that is empty, NA, N/A, NaN, null, none, ? or -, in
  // upper or lower case. Of a class only the empty field is missing: others may be names.
  enum class Missing {
    kRefuse,   // INVALID_ARGUMENT
    kKeep,     // NaN among the values; in what is to be predicted it is refused all the same
    kDropRow,  // the row is left out
  };
  Missing missing = Missing::kRefuse;
};

// A table of numbers, of which one column is a class, or some are to be predicted.
//
// Fields are separated by ',', ';' or tab, whichever the first line has most of; a field may stand
// in double quotes, "" within them being a quote (RFC 4180), but a line break may not. Empty
// lines, spaces around fields, a byte-order mark and CR before LF are passed over. The first line
// is a header if a field other than the class is neither a number nor missing, or if the class's
// column is named and not numbered.
//
// Classes are integers from 0. If any is no number, all are names, numbered in the order of their
// bytes.
//
// NOT_FOUND: no file. DATA_LOSS: a line has another number of fields than the first, or an open
// quote. INVALID_ARGUMENT: a field is no number that float32 holds, or missing; a label is neither
// a name nor an integer of 0 to 65535; more than 65536 classes; no such column, no feature column,
// no row. Each names the line and, where it is one field's, the column.
absl::StatusOr<RowSet> ReadCsv(const std::string& path, const CsvColumns& columns);

}  // namespace torchps
