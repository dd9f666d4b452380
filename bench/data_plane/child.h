#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// Runs a child process and exchanges lines with it through standard input and output. Standard
// error is shared. The destructor closes the child's standard input and, if the child does not
// exit, sends SIGKILL. Not thread-safe.
class Child {
 public:
  // Starts `command`: a path and arguments. NOT_FOUND: cannot start it.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::vector<std::string>& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Say(const std::string& line);
  // Blocks until the next line. UNAVAILABLE: the child exited.
  absl::StatusOr<std::string> ReadLine();
  // Blocks until output is available or `timeout` passes. Returns true if output is available.
  bool AwaitOutput(absl::Duration timeout) const;

  // Returns the processor time of the child's threads so far.
  absl::Duration CpuTime() const;
  // Returns the resident memory, including shared pages; 0 after the child's exit.
  int64_t ResidentBytes() const;
  // Returns the congestion control of the child's TCP connections: "cubic" or "bbr,cubic". Returns
  // "" without connections or permission to inspect them.
  std::string CongestionControl() const;

 private:
  Child() = default;

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string unread_;
};

}  // namespace torchps
