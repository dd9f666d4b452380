#pragma once

#include <ostream>
#include <vector>

#include "torchps/tools/base/flag_table.h"

namespace torchps {

// Implements `psctl compare`: compares the results, jobs and evaluations of two runs.

std::vector<FlagSpec> CompareFlags();

// Returns exit code 0 if shown, even without reports; 2 if the flags do not name two runs; 5 if a
// run does not exist or a file cannot be read.
int CompareCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
