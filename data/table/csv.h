#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/table/row_set.h"

namespace torchps {

// A table of numbers, one column of which is the class, an integer from 0.
//
// Fields are separated by ',', ';' or tab, whichever the first line has most of; a field may stand
// in double quotes, "" within them being a quote (RFC 4180), but a line break may not. Empty
// lines, spaces around fields, a byte-order mark and CR before LF are passed over. The first line
// is a header if it has a field that is not a number. `label_column` is a name of the header or a
// column's number from 0; empty is the last column.
//
// NOT_FOUND: no file. DATA_LOSS: a line has another number of fields than the first, or an open
// quote. INVALID_ARGUMENT: a field is no number that float32 holds, a label no integer of 0 to
// 65535, no such label column, no feature column, no row. Each names the line.
absl::StatusOr<RowSet> ReadCsv(const std::string& path, const std::string& label_column);

}  // namespace torchps
