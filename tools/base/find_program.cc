#include "tools/base/find_program.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {

std::string OwnDirectory() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

absl::StatusOr<std::string> FindProgram(const FlagValues& flags, const std::string& flag,
                                        const std::string& directory, const std::string& folder,
                                        const std::string& name) {
  const std::filesystem::path beside = directory;
  std::vector<std::string> places = {beside / name, beside.parent_path() / folder / name};
  if (flags.Has(flag)) places = {flags.Get(flag)};
  for (const std::string& place : places) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(place, error);
    if (!error && std::filesystem::is_regular_file(path) && access(path.c_str(), X_OK) == 0) {
      return path.string();
    }
  }
  if (flags.Has(flag)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", places.front(), " is not an executable program"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot find ", name, " (looked for ", absl::StrJoin(places, " and "), "); build it with ",
      "'bazel build //", folder, ":", name, "' or name it with --", flag));
}

bool IsOwnWorker(absl::string_view path) {
  return std::filesystem::path(std::string(path)).filename() == "ps_worker";
}

}  // namespace torchps
