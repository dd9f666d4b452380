#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace torchps {

// A program that psctl started: its standard output and standard error come back line by line, its
// standard input is a pipe that stays open as long as this object lives. A child that stops when
// its standard input ends (`--exit_with_parent`) therefore never outlives psctl, however psctl
// ends; through ssh this holds too.
//
// Each child is the leader of its own process group, so that Ctrl-C in a terminal reaches psctl
// alone, and psctl stops workers before servers. Nothing here blocks or starts a thread but
// WaitForActivity and StopChildren. Not thread-safe. The destructor kills a child that still runs.
class ChildProcess {
 public:
  struct Options {
    // Program and arguments. A program without a slash is looked for in $PATH.
    std::vector<std::string> command;
    // What the child is called in messages: "worker 0".
    std::string name;
    // Ask it to stop by ending its standard input instead of by SIGTERM: for ssh, which would die
    // of the signal and leave the remote program's last words behind.
    bool stop_by_stdin = false;
    // "NAME=value" for its environment, where psctl's own, which it inherits, has no such name.
    std::vector<std::string> environment = {};
  };

  enum class Stream { kOut, kError };
  // Called with one line, without its newline.
  using LineSink = std::function<void(Stream, absl::string_view line)>;

  // NOT_FOUND or PERMISSION_DENIED with the program's path if it cannot be started;
  // RESOURCE_EXHAUSTED without pipes or processes to be had.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(Options options);
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  pid_t pid() const { return pid_; }
  bool running() const { return !exited_; }

  // Hands lines that have arrived to `sink`, of a child that says much not all at once: then
  // WaitForActivity() returns at once. Notices that the child has ended: its last lines, whole or
  // not, are handed over first.
  void Collect(const LineSink& sink);

  // SIGTERM or end of input, as Options say; a child that is frozen goes on, to hear it. No effect
  // on a child that has ended.
  void AskToStop();
  // Any signal, to the child alone. No effect on a child that has ended.
  void Signal(int number);
  // SIGKILL to the child and whatever it started.
  void Kill();

  // 0 after a regular end; the exit code; 128 + n after signal n. REQUIRES: !running().
  int exit_code() const;
  // "exited with code 5 (a data file is missing, truncated or damaged)". REQUIRES: !running().
  std::string ExitReason() const;

 private:
  friend bool WaitForActivity(const std::vector<ChildProcess*>& children, int wake_fd,
                              absl::Duration timeout);

  explicit ChildProcess(Options options);

  // One end of a pipe that is ours. Closed with its owner; -1 is none.
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
    std::string unfinished;  // what came since the last newline
  };

  absl::Status Spawn();
  // At most some `max_bytes`; what is left is there at the next Collect().
  void ReadLines(Pipe& pipe, Stream stream, size_t max_bytes, const LineSink& sink);

  const Options options_;
  pid_t pid_ = -1;
  Descriptor stdin_;
  Pipe out_;
  Pipe error_;
  Descriptor exit_;  // a pidfd: readable once the child has ended
  bool exited_ = false;
  int wait_status_ = 0;
};

// Blocks until a child has said something or ended, `wake_fd` (-1: none) is readable, or `timeout`
// has passed. Returns whether `wake_fd` is readable.
bool WaitForActivity(const std::vector<ChildProcess*>& children, int wake_fd,
                     absl::Duration timeout);

// Asks all running children to stop and waits until they have; those that have not within `grace`,
// or when `wake_fd` becomes readable (a second Ctrl-C, but no second SIGHUP:
// tools/base/interrupt.h), are killed. Lines go to `sink`.
void StopChildren(
    const std::vector<ChildProcess*>& children, int wake_fd, absl::Duration grace,
    const Clock& clock,
    const std::function<void(const ChildProcess&, ChildProcess::Stream, absl::string_view)>& sink);

}  // namespace torchps
