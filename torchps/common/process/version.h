#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace torchps {

// The torchps release from which this program was built. Thread-safe.

// Returns the content of the file VERSION, for example "0.3.0".
absl::string_view ReleaseVersion();

// Returns "abc1234", or "abc1234-dirty" if files were changed since that commit. Returns an empty
// string unless the program was built with --stamp in a git repository or with TORCHPS_COMMIT set.
absl::string_view ReleaseCommit();

// Returns "torchps 0.3.0 (commit abc1234)", or "torchps 0.3.0" if the commit is unknown.
std::string ReleaseLine();

}  // namespace torchps
