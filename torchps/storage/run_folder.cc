#include "torchps/storage/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr char kRuns[] = "runs";
constexpr int kMaxOfOneSecond = 1000;
constexpr mode_t kMode = 0777;  // minus the umask

}  // namespace

std::string AbsoluteIfThere(const std::string& path) {
  std::error_code unknown;
  if (path.empty() || !std::filesystem::exists(path, unknown)) return path;
  return std::filesystem::absolute(path, unknown).lexically_normal().string();
}

bool IsServerState(absl::string_view name) {
  if (absl::EndsWith(name, ".lock")) return false;
  return absl::StartsWith(name, "checkpoint-") || absl::StartsWith(name, "log-") ||
         absl::StartsWith(name, "coordinator.") || absl::StartsWith(name, "server-") ||
         absl::StartsWith(name, "copies-of-");
}

std::string StateDirectory(const std::string& run) {
  std::error_code unknown;
  const std::string state = absl::StrCat(run, "/state");
  if (std::filesystem::is_directory(state, unknown)) return state;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(run, unknown)) {
    if (IsServerState(entry.path().filename().string())) return run;
  }
  return state;
}

absl::StatusOr<std::string> MakeRunFolder(absl::string_view name, absl::Time now) {
  const std::string first = absl::StrCat(
      kRuns, "/", name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
  const auto failure = [](const std::string& path, int error_number) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make the run's folder ", path, ": ",
                                                     std::strerror(error_number),
                                                     "; name another folder with --dir"));
  };
  std::string path = first;
  std::error_code error;
  std::filesystem::create_directories(kRuns, error);
  if (error) return failure(AbsoluteIfThere(".") + kRuns, error.value());
  for (int i = 2; i <= kMaxOfOneSecond; ++i) {
    if (mkdir(path.c_str(), kMode) == 0) return path;
    if (errno != EEXIST) break;
    path = absl::StrCat(first, "-", i);
  }
  return failure(path, errno);
}

}  // namespace torchps
