#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/base/flag_table.h"

// What makes single workers of `psctl run` slower, to see what a straggler does: --slow, --pace and
// --pause. The workers do it (worker/loop/simulated_slowdown.h).

namespace torchps {

std::vector<FlagSpec> HandicapFlags();

// Slot -> the worker's own flags. INVALID_ARGUMENT says what is wrong with a value, or that a flag
// names a slot twice; slots go from 0 to workers - 1.
absl::StatusOr<std::map<int, std::vector<std::string>>> ParseHandicaps(const FlagValues& flags,
                                                                       int workers);

}  // namespace torchps
