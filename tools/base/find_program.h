#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/base/flag_table.h"

// Where the programs are that psctl starts. Free functions without state.

namespace torchps {

// The folder that psctl itself lies in.
std::string OwnDirectory();

// The program that --`flag` names; without that flag `name` beside psctl, in `directory`, where
// programs are installed, or in the neighbouring `folder`, where Bazel builds it.
// INVALID_ARGUMENT: there is none that can be run; says where it was looked for.
absl::StatusOr<std::string> FindProgram(const FlagValues& flags, const std::string& flag,
                                        const std::string& directory, const std::string& folder,
                                        const std::string& name);

// Whether that is torchps's own worker program, by its file's name: it knows the built-in models
// and data only.
bool IsOwnWorker(absl::string_view path);

}  // namespace torchps
