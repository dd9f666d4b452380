#include "data/download/cache_folder.h"

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<std::string> CacheFolder(
    const std::function<const char*(const char* name)>& environment) {
  const std::pair<const char*, const char*> places[] = {
      {"TORCHPS_CACHE", ""}, {"XDG_CACHE_HOME", "/torchps"}, {"HOME", "/.cache/torchps"}};
  for (const auto& [name, below] : places) {
    const char* const value = environment(name);
    // The XDG specification requires ignoring relative paths.
    if (value != nullptr && value[0] == '/') return absl::StrCat(value, below);
  }
  return absl::FailedPreconditionError(
      "there is no folder for downloads: neither TORCHPS_CACHE, XDG_CACHE_HOME nor HOME is an "
      "absolute path; set one, or name a directory with --data");
}

absl::StatusOr<std::string> CacheFolder() {
  return CacheFolder([](const char* name) { return std::getenv(name); });
}

absl::StatusOr<std::string> MnistFolder() {
  const absl::StatusOr<std::string> cache = CacheFolder();
  if (!cache.ok()) return cache.status();
  return absl::StrCat(*cache, "/mnist");
}

}  // namespace torchps
