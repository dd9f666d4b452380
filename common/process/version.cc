#include "common/process/version.h"

#include "absl/strings/str_cat.h"

namespace torchps {

// The build generates these two from the file VERSION and the commit.
extern const char kVersion[];
extern const char kCommit[];

absl::string_view ReleaseVersion() { return kVersion; }

absl::string_view ReleaseCommit() { return kCommit; }

std::string ReleaseLine() {
  const std::string commit =
      ReleaseCommit().empty() ? "" : absl::StrCat(" (commit ", ReleaseCommit(), ")");
  return absl::StrCat("torchps ", ReleaseVersion(), commit);
}

}  // namespace torchps
