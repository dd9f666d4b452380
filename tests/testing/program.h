#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/tools/base/child_process.h"

namespace torchps {

// Runs one of our programs as a process and collects the output. Keeps standard input open. The
// destructor kills the process. Not thread-safe.
class Program {
 public:
  // `command` contains the path and the arguments. If the program does not start, the test ends. If
  // `stop_by_stdin`, AskToStop() closes standard input instead of sending SIGTERM.
  explicit Program(std::vector<std::string> command, bool stop_by_stdin = false);

  // Waits for a line on standard output that begins with `prefix` and returns it. Returns "" if the
  // program ends first or after `patience`.
  std::string AwaitLine(absl::string_view prefix, absl::Duration patience = absl::Seconds(60));
  // Like AwaitLine(), for a line on standard error that contains `words`.
  std::string AwaitError(absl::string_view words, absl::Duration patience = absl::Seconds(60));

  // Waits for the end of the program. Returns the exit code as a shell reports it, or -1 after
  // `patience`.
  int AwaitExit(absl::Duration patience = absl::Seconds(60));

  void AskToStop() { child_->AskToStop(); }
  bool running() const { return child_->running(); }
  pid_t pid() const { return child_->pid(); }

  const std::vector<std::string>& out() const { return out_; }
  const std::vector<std::string>& error() const { return error_; }

 private:
  // Collects output until `enough` returns true or the program ends. Returns false after
  // `patience`.
  bool Watch(absl::FunctionRef<bool()> enough, absl::Duration patience);

  std::unique_ptr<ChildProcess> child_;
  std::vector<std::string> out_;
  std::vector<std::string> error_;
};

// A ps_server and the address on which it listens.
struct ServerProgram {
  std::unique_ptr<Program> program;
  std::string address;
};
// Starts ps_server with these flags. The address is empty if the server does not become ready.
// `max_files` limits the open files of the server; 0 keeps this process's limit.
ServerProgram StartServerProgram(std::vector<std::string> flags = {}, int max_files = 0);

}  // namespace torchps
