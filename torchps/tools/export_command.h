#pragma once

#include <ostream>
#include <vector>

#include "torchps/tools/base/flag_table.h"

namespace torchps {

// Implements `psctl export`: writes the model of a checkpoint to a file that Python can read.

std::vector<FlagSpec> ExportFlags();

// Returns exit code 0 if the files are written, 5 if a checkpoint cannot be loaded or a shard is
// missing, 2 for bad flags, 1 if a file cannot be written.
int ExportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
