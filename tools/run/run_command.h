#pragma once

#include <ostream>

#include "tools/base/flag_table.h"

namespace torchps {

// `psctl run`: plans the run and executes it. Returns the exit code. Writes complaints to `error`
// and everything else to `out`.
int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
