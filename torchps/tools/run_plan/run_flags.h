#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "torchps/tools/base/flag_table.h"

// The flags of `psctl run`. Stateless.

namespace torchps {

std::vector<FlagSpec> RunFlags();

// Returns the flag that sets a job field, for example "--lr" for "learning_rate" or
// "--set=training.clip_norm=VALUE"; "" if the field is unknown.
std::string RunFlagFor(absl::string_view field);

// Returns assignments such as "training.epochs=3": first those of --set, then those of the short
// forms.
std::vector<std::string> Assignments(const FlagValues& flags);

// Returns the quoted arguments that resume the run, each after a space. Omits the flags that the
// run folder and the job file replace.
std::string FlagsAgain(const FlagValues& flags);

}  // namespace torchps
