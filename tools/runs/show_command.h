#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"

namespace torchps {

// Implements `psctl show`: prints the report of a finished run from the run folder.

std::vector<FlagSpec> ShowFlags();

// Returns exit code 0 if shown, 5 if the run does not exist or lacks a report.
int ShowCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
