#pragma once

#include <ostream>

#include "tools/base/flag_table.h"

namespace torchps {

// Implements `psctl run`: plans and runs a job. Returns the exit code. Writes errors and hints to
// `error`, other output to `out`.
int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
