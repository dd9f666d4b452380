#include "torchps/tools/base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/common/process/command_line.h"
#include "torchps/tools/base/interrupt.h"

extern char** environ;

namespace torchps {

std::string OwnDirectory() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

absl::StatusOr<std::string> FindProgram(const FlagValues& flags, const std::string& flag,
                                        const std::string& directory, const std::string& name) {
  const std::filesystem::path place = flags.Has(flag) ? std::filesystem::path(flags.Get(flag))
                                                      : std::filesystem::path(directory) / name;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(place, error);
  if (!error && std::filesystem::is_regular_file(path) && access(path.c_str(), X_OK) == 0) {
    return path.string();
  }
  if (flags.Has(flag)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", place.string(), " is not an executable program"));
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot find the program ", place.string(),
                                                 "; build it with 'bazel build ",
                                                 "//torchps:", name, "' or name it with --", flag));
}

bool IsOwnWorker(absl::string_view path) {
  return std::filesystem::path(std::string(path)).filename() == "ps_worker";
}

namespace {

// Longer lines are passed on in pieces, so that a child cannot exhaust psctl's memory.
constexpr size_t kLongestLine = 64 * 1024;

// Maximum read from one child at a time, so that a child with much output does not delay the other
// children or Ctrl-C.
constexpr size_t kMaxAtOnce = 64 * 1024;

// Returns the capacity of a pipe in bytes: the most output that an exited child can have left in
// it. Reading to the end of the stream could take forever, because a process started by the child
// may still be writing to the pipe.
size_t MostIn(int pipe) {
  const int bytes = fcntl(pipe, F_GETPIPE_SZ);
  return bytes > 0 ? static_cast<size_t>(bytes) : kMaxAtOnce;
}

// Returns this process's environment, plus the variables in `defaults` that the environment does
// not define.
std::vector<char*> EnvironmentWith(const std::vector<std::string>& defaults) {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  for (const std::string& variable : defaults) {
    const std::string name = variable.substr(0, variable.find('='));
    if (std::getenv(name.c_str()) == nullptr) {
      variables.push_back(const_cast<char*>(variable.c_str()));
    }
  }
  variables.push_back(nullptr);
  return variables;
}

absl::Status CannotStart(const std::string& program, int error) {
  const std::string message = absl::StrCat("cannot start ", program, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::ResourceExhaustedError(message);
  }
}

const char* GetMeaning(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kUsage:
      return "a flag or a job field is not valid";
    case ExitCode::kUnreachable:
      return "a server did not answer";
    case ExitCode::kRefused:
      return "refused: another job, model or protocol";
    case ExitCode::kData:
      return "a data file is missing, truncated or damaged";
    case ExitCode::kAddressInUse:
      return "the port to listen on is taken";
    case ExitCode::kLostSlot:
      return "it lost its slot";
    default:
      break;
  }
  if (exit_code == 127) return "no such program there";
  return nullptr;
}

// Returns true if `wake_fd` is readable, not counting a repeated SIGHUP.
bool IsAskedAgain(int wake_fd) {
  Interrupt::ForgetHangup();
  pollfd waking = {wake_fd, POLLIN, 0};
  return poll(&waking, 1, 0) == 1;
}

}  // namespace

void ChildProcess::Descriptor::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

ChildProcess::ChildProcess(Options options) : options_(std::move(options)) {}

ChildProcess::~ChildProcess() {
  if (exited_ || pid_ < 0) return;
  Kill();
  // The child cannot ignore SIGKILL, so this ends promptly.
  while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(Options options) {
  TPS_CHECK(!options.command.empty(), "a child needs a program");
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(options)));
  if (const absl::Status status = child->Spawn(); !status.ok()) return status;
  return child;
}

absl::Status ChildProcess::Spawn() {
  const std::string& program = options_.command.front();
  int in[2], out[2], error[2];
  Descriptor child_in, child_out, child_error;
  // Close-on-exec; otherwise a child would inherit the pipes of another child and keep them open
  // after that child's end.
  if (pipe2(in, O_CLOEXEC) != 0) return CannotStart(program, errno);
  child_in.Reset(in[0]);
  stdin_.Reset(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return CannotStart(program, errno);
  out_.end.Reset(out[0]);
  child_out.Reset(out[1]);
  if (pipe2(error, O_CLOEXEC) != 0) return CannotStart(program, errno);
  error_.end.Reset(error[0]);
  child_error.Reset(error[1]);
  fcntl(out_.end.get(), F_SETFL, O_NONBLOCK);
  fcntl(error_.end.get(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_error.get(), STDERR_FILENO);

  // psctl blocks the signals that it reads from a descriptor. Children must not inherit the blocked
  // signals.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> arguments;
  for (const std::string& argument : options_.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const std::vector<char*> environment = EnvironmentWith(options_.environment);
  const int failure = posix_spawnp(&pid_, program.c_str(), &actions, &attributes, arguments.data(),
                                   environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) {
    pid_ = -1;
    return CannotStart(program, failure);
  }
  // Called by number because glibc before 2.36 lacks this function.
  exit_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (exit_.get() < 0) {
    return absl::UnimplementedError(absl::StrCat(
        "cannot watch child processes (Linux 5.3 or newer is needed): ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

void ChildProcess::Collect(const LineSink& sink) {
  // waitpid precedes reading, so that the output before the exit is complete.
  const bool ended = !exited_ && waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  ReadLines(out_, Stream::kOut, ended ? MostIn(out_.end.get()) : kMaxAtOnce, sink);
  ReadLines(error_, Stream::kError, ended ? MostIn(error_.end.get()) : kMaxAtOnce, sink);
  if (!ended) return;
  exited_ = true;
  exit_.Reset(-1);
  stdin_.Reset(-1);
  // A process that the child started may still hold the pipes open. The output of that process is
  // discarded.
  for (auto [pipe, stream] : {std::pair(&out_, Stream::kOut), std::pair(&error_, Stream::kError)}) {
    pipe->end.Reset(-1);
    if (!pipe->unfinished.empty()) sink(stream, pipe->unfinished);
    pipe->unfinished.clear();
  }
}

void ChildProcess::ReadLines(Pipe& pipe, Stream stream, size_t max_bytes, const LineSink& sink) {
  char buffer[4096];
  for (size_t taken = 0; pipe.end.get() >= 0 && taken < max_bytes;) {
    const ssize_t length = read(pipe.end.get(), buffer, sizeof(buffer));
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) {
      pipe.end.Reset(-1);
      return;
    }
    taken += static_cast<size_t>(length);
    pipe.unfinished.append(buffer, length);
    size_t begin = 0;
    for (size_t end = pipe.unfinished.find('\n'); end != std::string::npos;
         end = pipe.unfinished.find('\n', begin)) {
      sink(stream, absl::string_view(pipe.unfinished).substr(begin, end - begin));
      begin = end + 1;
    }
    pipe.unfinished.erase(0, begin);
    if (pipe.unfinished.size() >= kLongestLine) {
      sink(stream, pipe.unfinished);
      pipe.unfinished.clear();
    }
  }
}

void ChildProcess::AskToStop() {
  if (exited_) return;
  // SIGCONT must precede SIGTERM. LeakSanitizer stops all threads when the process exits; a SIGCONT
  // at that time would cancel the stops, and the process would hang.
  kill(pid_, SIGCONT);
  if (options_.stop_by_stdin) {
    stdin_.Reset(-1);
  } else {
    kill(pid_, SIGTERM);
  }
}

void ChildProcess::Signal(int number) {
  if (!exited_) kill(pid_, number);
}

void ChildProcess::Kill() {
  if (!exited_) kill(-pid_, SIGKILL);
}

int ChildProcess::exit_code() const {
  TPS_CHECK(exited_, "a running child has no exit code");
  return WIFSIGNALED(wait_status_) ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

std::string ChildProcess::ExitReason() const {
  TPS_CHECK(exited_, "a running child has no exit reason");
  if (WIFSIGNALED(wait_status_)) {
    const int number = WTERMSIG(wait_status_);
    return absl::StrCat("was ended by signal ", number, " (", strsignal(number), ")");
  }
  const int code = WEXITSTATUS(wait_status_);
  const char* const meaning = GetMeaning(code);
  return absl::StrCat("exited with code ", code,
                      meaning == nullptr ? "" : absl::StrCat(" (", meaning, ")"));
}

bool WaitForActivity(const std::vector<ChildProcess*>& children, int wake_fd,
                     absl::Duration timeout) {
  std::vector<pollfd> watched;
  const auto watch = [&](int fd) {
    if (fd >= 0) watched.push_back({fd, POLLIN, 0});
  };
  watch(wake_fd);
  for (const ChildProcess* child : children) {
    watch(child->out_.end.get());
    watch(child->error_.end.get());
    watch(child->exit_.get());
  }
  const int64_t milliseconds = std::clamp<int64_t>(
      absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))), 0, 60 * 1000);
  poll(watched.data(), watched.size(), static_cast<int>(milliseconds));
  return wake_fd >= 0 && watched.front().revents != 0;
}

void StopChildren(
    const std::vector<ChildProcess*>& children, int wake_fd, absl::Duration grace,
    const Clock& clock,
    const std::function<void(const ChildProcess&, ChildProcess::Stream, absl::string_view)>& sink) {
  for (ChildProcess* child : children) child->AskToStop();
  const absl::Duration deadline = clock.Now() + grace;
  bool killed = false;
  const auto running = [](const ChildProcess* child) { return child->running(); };
  while (std::any_of(children.begin(), children.end(), running)) {
    const absl::Duration left = killed ? absl::Minutes(1) : deadline - clock.Now();
    const bool woken =
        WaitForActivity(children, killed ? -1 : wake_fd, left) && IsAskedAgain(wake_fd);
    if (!killed && (woken || clock.Now() >= deadline)) {
      for (ChildProcess* child : children) child->Kill();
      killed = true;
    }
    for (ChildProcess* child : children) {
      child->Collect(
          [&](ChildProcess::Stream stream, absl::string_view line) { sink(*child, stream, line); });
    }
  }
}

std::vector<char*> ExecArguments(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

int BecomeProgram(const std::vector<std::string>& words, std::ostream& error) {
  execv(words[0].c_str(), ExecArguments(words).data());
  error << "psctl: cannot start " << words[0] << ": " << std::strerror(errno) << std::endl;
  return static_cast<int>(ExitCode::kFailed);
}

}  // namespace torchps
