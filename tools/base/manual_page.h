#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/base/command_spec.h"

namespace torchps {

// psctl(1) for man, in troff: each command with its summary, example and flags. `release` is the
// text at the foot of the page, as "torchps 0.1.0". Thread-safe.
std::string ManualPage(const std::vector<CommandSpec>& commands, absl::string_view release);

}  // namespace torchps
