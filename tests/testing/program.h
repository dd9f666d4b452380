#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/base/child_process.h"

namespace torchps {

// One of our programs as a process of its own, with what it has said so far. Its standard input
// stays open. Killed with this object. Not thread-safe.
class Program {
 public:
  // `command`: path and arguments. A program that cannot be started ends the test.
  // `stop_by_stdin`: AskToStop() ends its standard input instead of sending SIGTERM.
  explicit Program(std::vector<std::string> command, bool stop_by_stdin = false);

  // Waits for a line on standard output that begins with `prefix`; the line, or "" if the program
  // ends or `patience` is over before.
  std::string AwaitLine(absl::string_view prefix, absl::Duration patience = absl::Seconds(60));
  // The same on standard error, for a line that contains `words`.
  std::string AwaitError(absl::string_view words, absl::Duration patience = absl::Seconds(60));

  // Waits for its end; the exit code as a shell tells it, -1 if it does not end.
  int AwaitExit(absl::Duration patience = absl::Seconds(60));

  void AskToStop() { child_->AskToStop(); }
  bool running() const { return child_->running(); }
  pid_t pid() const { return child_->pid(); }

  const std::vector<std::string>& out() const { return out_; }
  const std::vector<std::string>& error() const { return error_; }

 private:
  // Collects what it says until `enough` or until it has ended; false if `patience` was over first.
  bool Watch(absl::FunctionRef<bool()> enough, absl::Duration patience);

  std::unique_ptr<ChildProcess> child_;
  std::vector<std::string> out_;
  std::vector<std::string> error_;
};

// A ps_server that is ready, and where.
struct ServerProgram {
  std::unique_ptr<Program> program;
  std::string address;
};
// With `flags` beside --listen; an empty address if it does not get ready. `max_files`: so many it
// may have open, and cannot raise that; 0: as many as this process may.
ServerProgram StartServerProgram(std::vector<std::string> flags = {}, int max_files = 0);

}  // namespace torchps
