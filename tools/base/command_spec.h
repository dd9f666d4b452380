#pragma once

#include <string>
#include <vector>

#include "tools/base/flag_table.h"

namespace torchps {

// Describes a psctl command for completion scripts and the manual page.
struct CommandSpec {
  std::string name;     // "run"
  std::string summary;  // one sentence
  std::string example;  // a command line
  std::vector<FlagSpec> flags;
  // the flag that a word without a flag sets; empty if the command does not accept such a word
  std::string bare;
};

}  // namespace torchps
