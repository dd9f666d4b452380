#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace torchps {

// Returns the element of `known` that `name` probably misspells, or "" if there is no close match.
// A close match differs only in case, or in at most a third of the letters. Two swapped letters
// count as a single error (Damerau 1964). If `name` is at most four letters long, the first letter
// must match: "top" is not a misspelling of "stop". Thread-safe.
std::string ClosestName(absl::string_view name, const std::vector<std::string>& known);

}  // namespace torchps
