#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"

namespace torchps {

// `psctl compare`: two runs side by side: results, differences of the jobs, evaluations.

std::vector<FlagSpec> CompareFlags();

// Exit code 0: shown, with or without a report of each run. 2: not two runs. 5: there is no such
// run, or a file of it cannot be read.
int CompareCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
