#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"
#include "tools/doctor/doctor_checks.h"

namespace torchps {

// `psctl doctor`: looks at everything that a run will need, before it needs it.

std::vector<FlagSpec> DoctorFlags();

// What the flags ask about. Reads files and tries addresses; starts nothing.
std::vector<Finding> Examine(const FlagValues& flags);

// 0 if there is no problem, otherwise 1.
int DoctorCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
