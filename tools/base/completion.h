#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/base/command_spec.h"

namespace torchps {

// The shells that CompletionScript() knows.
std::vector<std::string> CompletionShells();

// A script that completes psctl's commands, flags and their values in `shell`: the choices of a
// flag, and files where the placeholder is FILE, PATH or DIR. It completes the flags of ps_server
// and ps_worker from their --help. REQUIRES: `shell` is one of CompletionShells(). Thread-safe.
std::string CompletionScript(absl::string_view shell, const std::vector<CommandSpec>& commands);

}  // namespace torchps
