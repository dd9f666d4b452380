#include "storage/run_folder.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr char kRuns[] = "runs";
constexpr int kMostOfOneSecond = 1000;

}  // namespace

absl::StatusOr<std::string> MakeRunFolder(absl::string_view name, absl::Time now) {
  const std::string first = absl::StrCat(
      kRuns, "/", name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
  std::string path = first;
  std::error_code error;
  std::filesystem::create_directories(kRuns, error);
  for (int i = 2; !error && i <= kMostOfOneSecond; ++i) {
    if (std::filesystem::create_directory(path, error)) return path;
    if (!error) path = absl::StrCat(first, "-", i);
  }
  return absl::ResourceExhaustedError(absl::StrCat("cannot make the run's folder ", path, ": ",
                                                   error.message(), "; name one with --dir"));
}

}  // namespace torchps
