#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace torchps {

// True if a field is a missing value: empty, NA, N/A, NaN, null, none, ? or -, in upper or lower
// case.
bool IsMissing(absl::string_view field);

// True if a field is a number of any size.
bool IsNumber(absl::string_view field);

// Returns false if a field is not a number in the range of float32, the type of batches.
bool ReadNumber(absl::string_view field, double& value);

// Returns the text after "expected" in the error for a field that ReadNumber() refused.
// `can_leave_out`: the user may list the column in data.csv.ignore_column.
std::string ExpectedNumber(absl::string_view field, bool can_leave_out);

}  // namespace torchps
