#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/base/command_spec.h"

namespace torchps {

// Returns the manual page psctl(1) in troff: the summary, example and flags of each command.
// `release` is the footer text, for example "torchps 0.1.0". Thread-safe.
std::string ManualPage(const std::vector<CommandSpec>& commands, absl::string_view release);

}  // namespace torchps
