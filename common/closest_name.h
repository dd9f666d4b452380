#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace torchps {

// One of `known` that `name` is probably a misspelling of; "" where none is near. Near is: equal
// but for case, or with at most a third of the letters wrong, where two that changed places are one
// wrong letter (Damerau 1964). Up to four letters the first one must be right: "top" is no slip of
// "stop". Thread-safe.
std::string ClosestName(absl::string_view name, const std::vector<std::string>& known);

}  // namespace torchps
