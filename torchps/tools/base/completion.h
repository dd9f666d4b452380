#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "torchps/tools/base/flag_table.h"

namespace torchps {

// Returns the shells that CompletionScript() supports.
std::vector<std::string> CompletionShells();

// Returns a script that completes psctl's commands, flags and flag values in `shell`. Values are a
// flag's choices, or files if the placeholder is FILE, PATH or DIR. The script also completes the
// flags of ps_server and ps_worker, from their --help output. REQUIRES: `shell` is in
// CompletionShells(). Thread-safe.
std::string CompletionScript(absl::string_view shell, const std::vector<CommandSpec>& commands);

// Returns the manual page psctl(1) in troff: the summary, example and flags of each command.
// `release` is the footer text, for example "torchps 0.3.0". Thread-safe.
std::string ManualPage(const std::vector<CommandSpec>& commands, absl::string_view release);

}  // namespace torchps
