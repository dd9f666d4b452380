#include "torchps/tools/run_folder/run_directory.h"

#include <google/protobuf/text_format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "torchps/storage/run_folder.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/run_folder/run_list.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

constexpr char kJob[] = "job.textproto";
constexpr char kWrittenJob[] = "job.written.textproto";
constexpr char kState[] = "state";

// Returns true for files that every run writes, and for locks of finished processes. They do not
// contain job state.
bool IsOfAnyRun(absl::string_view name) {
  return absl::EndsWith(name, ".lock") || name == "logs" || name == "report.json" ||
         name == "run.json" || name == "run.json.tmp" || absl::StartsWith(name, kJob) ||
         absl::StartsWith(name, kWrittenJob) || name == "writable.tmp" ||
         (absl::StartsWith(name, "report.json.") && absl::EndsWith(name, ".tmp"));
}

struct Contents {
  int checkpoints = 0;
  uint64_t newest = 0;
  int logs = 0;  // push logs, one per server
  bool coordinator = false;
  std::vector<std::string> others;
};

void LookAt(const std::string& dir, Contents& contents) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view number = name;
    uint64_t checkpoint = 0;
    if (IsOfAnyRun(name) || (name == kState && entry.is_directory(error))) continue;
    if (absl::ConsumePrefix(&number, "checkpoint-") && absl::SimpleAtoi(number, &checkpoint)) {
      // A checkpoint without a manifest was left by a crash and cannot be used.
      if (!fs::exists(entry.path() / "MANIFEST.json", error)) continue;
      ++contents.checkpoints;
      contents.newest = std::max(contents.newest, checkpoint);
    } else if (absl::StartsWith(name, "log-")) {
      ++contents.logs;
    } else if (absl::StartsWith(name, "coordinator.")) {
      contents.coordinator = true;
    } else {
      contents.others.push_back(name);
    }
  }
}

// Examines the run's folder and the folder of the servers' files.
Contents Look(const std::string& dir) {
  Contents contents;
  LookAt(dir, contents);
  if (const std::string state = StateDirectory(dir); state != dir) LookAt(state, contents);
  std::sort(contents.others.begin(), contents.others.end());
  return contents;
}

std::string Describe(const Contents& contents) {
  if (contents.checkpoints > 0) {
    return absl::StrCat(Count(contents.checkpoints, "checkpoint"), " of a job, ",
                        contents.checkpoints == 1 ? "" : "the newest ", "number ", contents.newest);
  }
  if (contents.logs > 0) return "the push log of a job";
  if (contents.coordinator) return "a job's coordinator, but no checkpoint";
  if (contents.others.empty()) return "nothing";
  return absl::StrCat("'", contents.others.front(), "'",
                      contents.others.size() == 1
                          ? ""
                          : absl::StrCat(" and ", contents.others.size() - 1, " more"));
}

absl::Status CannotWriteTo(const std::string& dir, int error_number) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot write to ", dir, ": ",
                                                   std::strerror(error_number),
                                                   "; name another directory with --dir"));
}

absl::Status Keep(const std::string& dir, const std::string& name, const std::string& text) {
  // Write a temporary file and rename it, because other processes may be reading the old file.
  const std::string path = absl::StrCat(dir, "/", name);
  const std::string temporary = absl::StrCat(path, ".tmp");
  std::ofstream file(temporary);
  file << text << std::flush;
  const bool written = file.good() && std::rename(temporary.c_str(), path.c_str()) == 0;
  return written ? absl::OkStatus() : CannotWriteTo(dir, errno);
}

}  // namespace

std::string DescribeRunDirectory(const std::string& dir) { return Describe(Look(dir)); }

absl::Status CheckRunDirectory(const std::string& dir, bool resume) {
  std::error_code error;
  if (fs::exists(dir, error) && !fs::is_directory(dir, error)) {
    return absl::InvalidArgumentError(absl::StrCat("--dir=", dir, " is not a directory"));
  }
  const Contents contents = Look(dir);
  const bool something = contents.checkpoints > 0 || contents.logs > 0;
  if (resume) {
    if (something) return absl::OkStatus();
    const bool empty = !contents.coordinator && contents.others.empty();
    return absl::InvalidArgumentError(absl::StrCat(
        "--resume: ", dir, " holds ", Describe(contents),
        ", so there is nothing to resume; without --resume the job starts from the beginning",
        empty ? "" : ", in an empty directory"));
  }
  if (!something && !contents.coordinator && contents.others.empty()) return absl::OkStatus();
  if (IsRunning(dir)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dir=", dir,
                     ": another run uses it; wait for that run to end, or name another directory"));
  }
  const bool ours = something || contents.coordinator;
  return absl::InvalidArgumentError(
      absl::StrCat("--dir=", dir, " holds ", Describe(contents), "; ",
                   something ? "--resume continues that job; otherwise name an empty directory"
                   : ours    ? "empty it, or name another directory"
                             : "name an empty directory"));
}

absl::Status PrepareRunDirectory(const std::string& dir) {
  std::error_code error;
  fs::create_directories(fs::path(dir) / "logs", error);
  if (!error) fs::create_directories(StateDirectory(dir), error);
  return error ? CannotWriteTo(dir, error.value()) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> LockRunDirectory(const std::string& dir) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const std::string state = StateDirectory(dir);
  std::error_code ignored;
  fs::create_directory(state, ignored);
  absl::StatusOr<std::unique_ptr<FileLock>> lock = files->Lock(absl::StrCat(state, "/run.lock"));
  if (lock.ok()) return lock;
  // A held lock has the same status code as an invalid lock file or a read-only file system, so
  // this reads the message.
  if (!absl::IsFailedPrecondition(lock.status()) ||
      !absl::StrContains(lock.status().message(), " is held by ")) {
    return std::unique_ptr<FileLock>();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("another run uses ", dir, ": ", lock.status().message()));
}

absl::Status KeepJob(const std::string& dir, const JobSpec& job) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  return Keep(dir, kJob, text);
}

absl::Status KeepWrittenJob(const std::string& dir, const std::string& text) {
  return Keep(dir, kWrittenJob, text);
}

absl::StatusOr<JobSpec> ReadKeptJob(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/", kJob);
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  JobSpec job;
  google::protobuf::TextFormat::Parser parser;
  // Ignores fields of other versions.
  parser.AllowUnknownField(true);
  if (parser.ParseFromString(text, &job)) return job;
  return absl::DataLossError(absl::StrCat(path, ": expected a job in text format"));
}

void RemoveState(const std::string& dir) {
  std::error_code error;
  std::vector<fs::path> state;
  for (const std::string& place : {dir, StateDirectory(dir)}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
      const std::string name = entry.path().filename().string();
      // An upload that did not end is NAME.safetensors.slot-K.part or .ready.
      const bool is_model =
          absl::EndsWith(name, ".safetensors") || absl::StrContains(name, ".safetensors.slot-");
      if (is_model || IsServerState(name)) state.push_back(entry.path());
    }
  }
  for (const fs::path& path : state) fs::remove_all(path, error);
}

void RemoveUnusedRun(const std::string& dir, bool told) {
  std::error_code error;
  const auto is_file = [&error](const fs::directory_entry& entry) {
    return fs::is_regular_file(entry.symlink_status(error));
  };
  std::vector<fs::path> unused;
  const fs::path state = StateDirectory(dir);
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "logs" || entry.path() == state) continue;
    const bool is_nothing = absl::EndsWith(name, ".lock") || absl::StartsWith(name, kJob) ||
                            absl::StartsWith(name, kWrittenJob) ||
                            absl::StartsWith(name, "run.json");
    if (!is_nothing || !is_file(entry)) return;
    unused.push_back(entry.path());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(state, error)) {
    if (entry.path().extension() != ".lock" || !is_file(entry)) return;
    unused.push_back(entry.path());
  }
  const fs::path logs = fs::path(dir) / "logs";
  for (const fs::directory_entry& entry : fs::directory_iterator(logs, error)) {
    if (!is_file(entry) || (!told && entry.file_size(error) > 0)) return;
    unused.push_back(entry.path());
  }
  // The folders come last; remove() deletes them only if they are empty.
  unused.push_back(logs);
  unused.push_back(state);
  unused.emplace_back(dir);
  for (const fs::path& path : unused) fs::remove(path, error);
}

std::string ResumeCommand(const std::string& dir, const std::string& flags) {
  const Contents contents = Look(dir);
  if (contents.checkpoints == 0 && contents.logs == 0) return "";
  const std::string place = ShellQuoted(absl::StrCat("--dir=", dir));
  const std::string job = ShellQuoted(absl::StrCat("--job=", dir, "/job.textproto"));
  std::string text =
      absl::StrCat("psctl: ", dir, " holds ", Describe(contents), "\n  to resume: psctl run ",
                   place, " --resume ", job, flags, "\n");
  if (contents.checkpoints > 0) {
    absl::StrAppend(&text, "  to export its model: psctl export ", place,
                    " --out=model.safetensors\n");
  }
  return text;
}

std::string DescribeModel(const std::string& dir, absl::Time since) {
  const fs::path model = fs::path(dir) / "model.safetensors";
  const fs::path best = fs::path(dir) / "best.safetensors";
  struct stat facts = {};
  if (stat(model.c_str(), &facts) != 0 || absl::TimeFromTimespec(facts.st_mtim) < since) return "";
  std::error_code error;
  return absl::StrCat(
      "model: ", model.string(),
      fs::exists(best, error) ? absl::StrCat(", the best one: ", best.string()) : "",
      "\nload it: safetensors.torch.load_file(\"", model.string(),
      "\") in Python, torchps::LoadModel(module, \"", model.string(), "\") in C++\n");
}

}  // namespace torchps
