#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/base/flag_table.h"

// Functions that find the programs psctl starts.

namespace torchps {

// Returns the folder of the psctl program.
std::string OwnDirectory();

// Returns the program that --`flag` names. Without that flag, searches for `name` in `directory`
// (the installed layout), then in the neighbouring `folder` (the Bazel build layout).
// INVALID_ARGUMENT: found no executable program; the message lists the places searched.
absl::StatusOr<std::string> FindProgram(const FlagValues& flags, const std::string& flag,
                                        const std::string& directory, const std::string& folder,
                                        const std::string& name);

// Returns true if the file name is that of torchps's worker program, which supports only the
// built-in models and data.
bool IsOwnWorker(absl::string_view path);

}  // namespace torchps
