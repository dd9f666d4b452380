#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"

namespace torchps {

// `psctl show`: the report of a run that has ended, from the files of its folder.

std::vector<FlagSpec> ShowFlags();

// Exit code 0: shown. 5: there is no such run, or it has no report.
int ShowCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
