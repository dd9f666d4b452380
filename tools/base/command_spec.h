#pragma once

#include <string>
#include <vector>

#include "tools/base/flag_table.h"

namespace torchps {

// A command of psctl as its documentation shows it: in completion scripts and the manual page.
struct CommandSpec {
  std::string name;     // "run"
  std::string summary;  // one sentence
  std::string example;  // a command line
  std::vector<FlagSpec> flags;
  std::string bare;  // the flag whose value a word without a flag is; empty: there is none
};

}  // namespace torchps
