#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"

namespace torchps {

// `psctl export`: the model of a checkpoint as a file that Python reads.

std::vector<FlagSpec> ExportFlags();

// Exit code 0 when all files are written, 5 if there is no checkpoint that can be loaded or a shard
// is missing, 2 for bad flags, 1 if a file cannot be written.
int ExportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
