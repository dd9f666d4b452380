#include "bench/data_plane/child.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

extern char** environ;

namespace torchps {
namespace {

constexpr int kStopGraceMs = 5000;
// Maximum number of descriptors inspected per process.
constexpr int kMaxDescriptors = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& command) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return absl::ResourceExhaustedError("cannot create a pipe");
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return absl::ResourceExhaustedError("cannot create a pipe");
  }
  auto child = absl::WrapUnique(new Child);
  child->in_ = in[1];
  child->out_ = out[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.data()));
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&child->pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  if (error != 0) {
    child->pid_ = -1;
    return absl::NotFoundError(
        absl::StrCat("cannot start ", command[0], ": ", std::strerror(error)));
  }
  return child;
}

Child::~Child() {
  if (in_ >= 0) close(in_);
  if (pid_ > 0) {
    const int process = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd ended = {process, POLLIN, 0};
    if (process < 0 || poll(&ended, 1, kStopGraceMs) != 1) kill(pid_, SIGKILL);
    if (process >= 0) close(process);
    waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) close(out_);
}

absl::Status Child::Say(const std::string& line) {
  const std::string bytes = line + "\n";
  if (write(in_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return absl::UnavailableError(absl::StrCat("process ", pid_, " no longer reads its input"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Child::ReadLine() {
  char bytes[1 << 16];
  size_t searched = 0;
  for (;;) {
    const size_t newline = unread_.find('\n', searched);
    if (newline != std::string::npos) {
      std::string line = unread_.substr(0, newline);
      unread_.erase(0, newline + 1);
      return line;
    }
    searched = unread_.size();
    const ssize_t got = read(out_, bytes, sizeof(bytes));
    if (got <= 0) return absl::UnavailableError(absl::StrCat("process ", pid_, " has ended"));
    unread_.append(bytes, got);
  }
}

bool Child::AwaitOutput(absl::Duration timeout) const {
  if (!unread_.empty()) return true;
  pollfd readable = {out_, POLLIN, 0};
  return poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1;
}

absl::Duration Child::CpuTime() const {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(time);
}

int64_t Child::ResidentBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  int64_t all = 0;
  int64_t resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string Child::CongestionControl() const {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (process < 0) return "";
  std::set<std::string> found;
  for (int fd = 0; fd < kMaxDescriptors; ++fd) {
    const int copy = static_cast<int>(syscall(SYS_pidfd_getfd, process, fd, 0));
    if (copy < 0) continue;
    char name[16] = {};
    socklen_t length = sizeof(name) - 1;
    sockaddr_storage peer;
    socklen_t peer_length = sizeof(peer);
    if (getsockopt(copy, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 &&
        getpeername(copy, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0) {
      found.insert(name);
    }
    close(copy);
  }
  close(process);
  return absl::StrJoin(found, ",");
}

}  // namespace torchps
