#include "torchps/tools/run/fetch_model.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "torchps/data/download_mnist.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/format.h"

namespace torchps {

absl::Status FetchData(const JobSpec& job, int interrupt_fd, std::ostream& out,
                       LaunchOptions& launch) {
  if (!launch.download || launch.elsewhere) return absl::OkStatus();
  DownloadOptions fetch;
  fetch.mirrors = absl::StrSplit(launch.mirrors, ',', absl::SkipEmpty());
  fetch.log = [&out](const std::string& line) { out << line << std::endl; };
  fetch.is_stopped = [interrupt_fd] {
    return WaitForActivity({}, interrupt_fd, absl::ZeroDuration());
  };
  const std::string& path = launch.data.empty() ? job.data().path() : launch.data;
  absl::StatusOr<std::string> directory =
      DownloadForJob(job.data().source(), path, std::move(fetch));
  if (!directory.ok()) return directory.status();
  launch.data = *std::move(directory);
  launch.download = false;
  launch.mirrors.clear();
  return absl::OkStatus();
}

namespace {

// Runs a command with standard output redirected to `file`. Returns true if the exit code is 0.
bool RunInto(const std::string& file, const std::vector<std::string>& command) {
  const std::vector<char*> words = ExecArguments(command);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, file.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0666);
  // psctl blocks signals, but Ctrl-C must stop a waiting ssh.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return failed == 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

absl::Status FetchModels(const LaunchOptions& launch, const std::string& host,
                         const std::string& dir) {
  for (const char* name : {"model.safetensors", "best.safetensors"}) {
    const std::string from = absl::StrCat(launch.dir, "/", name);
    const std::string part = absl::StrCat(dir, "/", name, ".part");
    const std::string copy = absl::StrCat("cat ", ShellQuoted(from));
    if (RunInto(part, CommandAt(launch, host, copy)) &&
        std::rename(part.c_str(), absl::StrCat(dir, "/", name).c_str()) == 0) {
      continue;
    }
    std::remove(part.c_str());
    // best.safetensors exists only if the job evaluates.
    if (name == absl::string_view("best.safetensors")) break;
    return absl::UnavailableError(absl::StrCat("cannot copy ", from, " from ", host,
                                               " through ssh; copy it by hand into ", dir));
  }
  return absl::OkStatus();
}

}  // namespace torchps
