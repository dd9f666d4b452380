#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"
#include "tools/doctor/doctor_checks.h"

namespace torchps {

// Implements `psctl doctor`: checks the requirements of a run before the run starts.

std::vector<FlagSpec> DoctorFlags();

// Runs the checks that the flags select. Reads files and connects to addresses, but does not start
// servers or workers.
std::vector<Finding> Examine(const FlagValues& flags);

// Returns 0 without problems, otherwise 1.
int DoctorCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
