#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace torchps {

// The release of torchps that this program was built from. Thread-safe.

// "0.1.0", the text of the file VERSION.
absl::string_view ReleaseVersion();

// "abc1234", or "abc1234-dirty" if files were changed since. Empty unless the program was built
// with --stamp in a git repository or with TORCHPS_COMMIT set.
absl::string_view ReleaseCommit();

// "torchps 0.1.0 (commit abc1234)", or without the commit.
std::string ReleaseLine();

}  // namespace torchps
