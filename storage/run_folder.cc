#include "storage/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr char kRuns[] = "runs";
constexpr int kMostOfOneSecond = 1000;
// It holds a model, and gradients.
constexpr mode_t kPrivate = 0700;

}  // namespace

bool MakePrivateDirectory(const std::string& given) {
  std::error_code ignored;
  // Of "a/b/" the parent would be "a/b", and be made for everybody.
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (mkdir(path.c_str(), kPrivate) == 0) return true;
  return errno == EEXIST && std::filesystem::is_directory(path, ignored);
}

absl::StatusOr<std::string> MakeRunFolder(absl::string_view name, absl::Time now) {
  const std::string first = absl::StrCat(
      kRuns, "/", name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
  std::string path = first;
  std::error_code error;
  std::filesystem::create_directories(kRuns, error);
  for (int i = 2; i <= kMostOfOneSecond; ++i) {
    if (mkdir(path.c_str(), kPrivate) == 0) return path;
    if (errno != EEXIST) break;
    path = absl::StrCat(first, "-", i);
  }
  return absl::ResourceExhaustedError(absl::StrCat("cannot make the run's folder ", path, ": ",
                                                   std::strerror(errno), "; name one with --dir"));
}

}  // namespace torchps
