#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/tools/base/flag_table.h"

// Finds the programs that psctl starts, and runs them as child processes.

namespace torchps {

// Returns the folder of the psctl program.
std::string OwnDirectory();

// Returns the program that --`flag` names. Without that flag, returns the program `name` in
// `directory`. INVALID_ARGUMENT: there is no executable program.
absl::StatusOr<std::string> FindProgram(const FlagValues& flags, const std::string& flag,
                                        const std::string& directory, const std::string& name);

// Returns true if the file name is that of torchps's worker program, which supports only the
// built-in models and data.
bool IsOwnWorker(absl::string_view path);

// Runs a program as a child process and reads the child's standard output and standard error line
// by line. The child's standard input is a pipe that stays open while this object lives. A child
// that stops at the end of standard input (`--exit_with_parent`) therefore never outlives psctl,
// even through ssh.
//
// Each child leads a separate process group. Ctrl-C in a terminal thus reaches only psctl, and
// psctl stops the workers before the servers. Only WaitForActivity and StopChildren block. Does not
// start threads. Not thread-safe. The destructor kills a running child.
class ChildProcess {
 public:
  struct Options {
    // Program and arguments. A program name without a slash is searched for in $PATH.
    std::vector<std::string> command;
    // Name for messages: "worker 0".
    std::string name;
    // Stops the child by closing standard input instead of sending SIGTERM. Used for ssh, because
    // SIGTERM would end ssh and lose the remote program's last output.
    bool stop_by_stdin = false;
    // Environment variables, as "NAME=value". The child inherits psctl's environment; a variable
    // that psctl already defines keeps psctl's value.
    std::vector<std::string> environment = {};
  };

  enum class Stream { kOut, kError };
  // Called with one line, without the newline.
  using LineSink = std::function<void(Stream, absl::string_view line)>;

  // Starts the child. NOT_FOUND or PERMISSION_DENIED: the program cannot be started; the message
  // contains the path. RESOURCE_EXHAUSTED: the system is out of pipes or processes.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(Options options);
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  pid_t pid() const { return pid_; }
  bool running() const { return !exited_; }

  // Passes the lines that have arrived to `sink`. Reads a limited amount per call; if more output
  // is pending, WaitForActivity() returns at once. Detects the child's exit, after passing the
  // remaining output to `sink`, including an unfinished line.
  void Collect(const LineSink& sink);

  // Sends SIGTERM or closes standard input, depending on Options. Resumes a frozen child so that
  // the child handles the request. Does nothing if the child has exited.
  void AskToStop();
  // Sends a signal to the child process only. Does nothing if the child has exited.
  void Signal(int number);
  // Sends SIGKILL to the child's process group.
  void Kill();

  // Returns the exit code, or 128 + n if signal n ended the child. REQUIRES: !running().
  int exit_code() const;
  // Returns, for example, "exited with code 5 (a data file is missing, truncated or damaged)".
  // REQUIRES: !running().
  std::string ExitReason() const;

 private:
  friend bool WaitForActivity(const std::vector<ChildProcess*>& children, int wake_fd,
                              absl::Duration timeout);

  explicit ChildProcess(Options options);

  // Owns one end of a pipe and closes it on destruction; -1 if empty.
  class Descriptor {
   public:
    Descriptor() = default;
    ~Descriptor() { Reset(-1); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    void Reset(int fd);
    int get() const { return fd_; }

   private:
    int fd_ = -1;
  };

  struct Pipe {
    Descriptor end;
    std::string unfinished;  // output after the last newline
  };

  absl::Status Spawn();
  // Reads about `max_bytes` at most; the next Collect() reads the rest.
  void ReadLines(Pipe& pipe, Stream stream, size_t max_bytes, const LineSink& sink);

  const Options options_;
  pid_t pid_ = -1;
  Descriptor stdin_;
  Pipe out_;
  Pipe error_;
  Descriptor exit_;  // pidfd: readable after the child exits
  bool exited_ = false;
  int wait_status_ = 0;
};

// Blocks until a child has output or exits, `wake_fd` (-1: unused) is readable, or `timeout`
// passes. Returns true if `wake_fd` is readable.
bool WaitForActivity(const std::vector<ChildProcess*>& children, int wake_fd,
                     absl::Duration timeout);

// Asks each running child to stop and blocks until they exit. Kills the children that still run
// after `grace`, or when `wake_fd` becomes readable. That happens on a second Ctrl-C, but not on a
// second SIGHUP (torchps/tools/base/interrupt.h). Passes output lines to `sink`.
void StopChildren(
    const std::vector<ChildProcess*>& children, int wake_fd, absl::Duration grace,
    const Clock& clock,
    const std::function<void(const ChildProcess&, ChildProcess::Stream, absl::string_view)>& sink);

// Returns `words` as the argument array for execv() and posix_spawn(): pointers into `words`, then
// a null pointer.
std::vector<char*> ExecArguments(const std::vector<std::string>& words);

// Replaces this process with the program words[0]. Returns only on failure: writes the reason to
// `error` and returns psctl's exit code.
int BecomeProgram(const std::vector<std::string>& words, std::ostream& error);

}  // namespace torchps
