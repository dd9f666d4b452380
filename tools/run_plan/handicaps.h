#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/base/flag_table.h"

// Flags that slow down single workers of `psctl run`, to test the effect of stragglers: --slow,
// --pace and --pause. The workers implement them (worker/loop/simulated_slowdown.h).

namespace torchps {

std::vector<FlagSpec> HandicapFlags();

// Returns each slot's worker flags. INVALID_ARGUMENT: a value is invalid, a slot is not in [0,
// workers), or a flag names a slot twice.
absl::StatusOr<std::map<int, std::vector<std::string>>> ParseHandicaps(const FlagValues& flags,
                                                                       int workers);

}  // namespace torchps
