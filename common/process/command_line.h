#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Sets the answers to --help and --version. --help prints `purpose`, one sentence, and every flag
// of the program, in whichever file it is defined. Call it once, before absl::ParseCommandLine.
void SetProgramHelp(absl::string_view purpose);

// Checks a command line against the program's absl flags before absl::ParseCommandLine reads it,
// which would end the process with exit code 1 and a page of its own words. INVALID_ARGUMENT names
// the first argument that is no flag of this program, has no value, or a value that cannot be.
// Changes no flag but those whose values it checks, to the values that parsing gives them anyway.
// `suggest` may return what to type in place of an unknown flag, from its name; empty: it knows
// nothing better than the most similar flag.
//
// Not thread-safe: for main, before any other thread. Flags that absl itself answers (--help,
// --version) are left to it.
absl::Status CheckCommandLine(int argc, const char* const* argv,
                              std::string (*suggest)(absl::string_view name) = nullptr);

}  // namespace torchps
