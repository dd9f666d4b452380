#include "torchps/tools/run_folder/run_list.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/storage/run_folder.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytesPerStatBlock = 512;  // unit of st_blocks on any file system
constexpr size_t kMaxNamed = 5;              // runs listed in a message

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string Absolute(const std::string& path) {
  std::error_code unknown;
  return fs::absolute(path, unknown).lexically_normal().string();
}

absl::StatusOr<ListedRun> ReadRun(const std::string& dir) {
  absl::StatusOr<RunRecord> record = ReadRunRecord(dir);
  if (!record.ok()) return record.status();
  return ListedRun{dir, fs::path(dir).filename().string(), *std::move(record)};
}

std::string GetNames(const std::vector<ListedRun>& runs) {
  std::vector<std::string> names;
  for (const ListedRun& run : runs) {
    if (names.size() == kMaxNamed) break;
    names.push_back(run.name);
  }
  return absl::StrJoin(names, ", ");
}

// Returns true if a process holds the lock. Only tries to get a shared lock, which does not disturb
// the holder.
bool IsHeld(const std::string& lock_file) {
  const int fd = open(lock_file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return held;
}

absl::Status CheckReachable(const ListedRun& run) {
  if (!IsRunning(run.dir)) {
    return absl::UnavailableError(absl::StrCat("run ", run.name, " is not running; 'psctl show ",
                                               run.name, "' shows its report"));
  }
  if (run.record.host != OwnHostName()) {
    return absl::UnavailableError(absl::StrCat("run ", run.name, " runs on ", run.record.host,
                                               "; ask there, or name its servers with --servers"));
  }
  if (run.record.servers.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the servers of run ", run.name, " do not listen yet; try again"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& folder) {
  std::error_code error;
  std::vector<ListedRun> runs;
  fs::directory_iterator entries(folder, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the folder ", Absolute(folder), ": ", error.message()));
  }
  for (const fs::directory_entry& entry : entries) {
    if (!fs::is_directory(entry.symlink_status(error))) continue;
    absl::StatusOr<ListedRun> run = ReadRun(entry.path().string());
    if (run.ok()) runs.push_back(*std::move(run));
  }
  std::sort(runs.begin(), runs.end(), [](const ListedRun& a, const ListedRun& b) {
    return std::make_pair(a.record.began, a.name) > std::make_pair(b.record.began, b.name);
  });
  return runs;
}

absl::StatusOr<ListedRun> FindRun(const std::string& name) {
  const std::string dir = WithoutSlash(name);
  for (const std::string& candidate : {dir, absl::StrCat(kRunsFolder, "/", dir)}) {
    absl::StatusOr<ListedRun> run = ReadRun(candidate);
    if (run.ok() || !absl::IsNotFound(run.status())) return run;
  }
  const absl::StatusOr<std::vector<ListedRun>> runs = ListRuns(kRunsFolder);
  return absl::NotFoundError(absl::StrCat(
      "there is no run ", name, ": neither a folder with a run.json nor a name in ",
      Absolute(kRunsFolder),
      runs.ok() && !runs->empty() ? absl::StrCat("; the newest there: ", GetNames(*runs)) : ""));
}

absl::StatusOr<ListedRun> NewestRun() {
  absl::StatusOr<std::vector<ListedRun>> runs = ListRuns(kRunsFolder);
  if (!runs.ok()) return runs.status();
  if (runs->empty()) {
    return absl::NotFoundError(absl::StrCat("there is no run in ", Absolute(kRunsFolder)));
  }
  return std::move(runs->front());
}

bool IsRunning(const std::string& dir) {
  std::error_code error;
  // Earlier versions of psctl put locks in `dir`.
  for (const std::string& place : {dir, StateDirectory(dir)}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
      if (entry.path().extension() == ".lock" && IsHeld(entry.path().string())) return true;
    }
  }
  return false;
}

absl::StatusOr<ListedRun> FindRunningRun(const std::string& name) {
  if (!name.empty()) {
    absl::StatusOr<ListedRun> run = FindRun(name);
    if (!run.ok()) return run.status();
    if (const absl::Status reachable = CheckReachable(*run); !reachable.ok()) return reachable;
    return run;
  }
  const absl::StatusOr<std::vector<ListedRun>> runs = ListRuns(kRunsFolder);
  std::vector<ListedRun> running;
  if (runs.ok()) {
    std::copy_if(runs->begin(), runs->end(), std::back_inserter(running), [](const ListedRun& run) {
      return run.record.host == OwnHostName() && IsRunning(run.dir);
    });
  }
  if (running.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no run in ", Absolute(kRunsFolder),
                     " is running; --run=DIR names the folder of a run elsewhere, "
                     "--servers=HOST:PORT,... the servers of any cluster"));
  }
  if (running.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(running.size(),
                                                   " runs are running: ", GetNames(running),
                                                   "; name one, as --run=", running.front().name));
  }
  if (const absl::Status reachable = CheckReachable(running.front()); !reachable.ok()) {
    return reachable;
  }
  return std::move(running.front());
}

int64_t BytesOnDisk(const std::string& dir) {
  int64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(
           dir, fs::directory_options::skip_permission_denied, error)) {
    struct stat facts = {};
    if (lstat(entry.path().c_str(), &facts) == 0 && S_ISREG(facts.st_mode)) {
      bytes += facts.st_blocks * kBytesPerStatBlock;
    }
  }
  return bytes;
}

FlagSpec RunFlag() {
  return {"run", "RUN",
          "A running run on this machine, instead of --servers: its name in runs/, or its folder. "
          "Default: the only running one in runs/."};
}

}  // namespace torchps
