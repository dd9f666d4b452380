#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/base/flag_table.h"

// The flags of `psctl run`. Free functions without state.

namespace torchps {

std::vector<FlagSpec> RunFlags();

// The flags that set the job field with this name, as "--lr" for "learning_rate" or
// "--set=training.clip_norm=VALUE"; empty if the job has no such field.
std::string RunFlagFor(absl::string_view field);

// Returns the assignments of --set and of its short forms, as "training.epochs=3", in this order.
std::vector<std::string> Assignments(const FlagValues& flags);

// Returns the words to type again to resume the run, quoted, each after a space. Leaves out the
// flags that the run's folder and its job file replace.
std::string FlagsAgain(const FlagValues& flags);

}  // namespace torchps
