#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// A process of ours that is talked to in lines: what we say is its standard input, what it says its
// standard output. Standard error is shared. Ends when this object goes, by the end of its standard
// input, and by SIGKILL where that does not help. Not thread-safe.
class Child {
 public:
  // `command`: a path and its arguments. NOT_FOUND: it cannot be started.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::vector<std::string>& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Say(const std::string& line);
  // Waits for the next line. UNAVAILABLE: it has ended instead.
  absl::StatusOr<std::string> ReadLine();
  // Waits until there is something to read, or `timeout` has passed; whether there is.
  bool AwaitOutput(absl::Duration timeout) const;

  // Processor time of all of its threads until now.
  absl::Duration CpuTime() const;
  // Memory that it holds now, shared pages included; 0 where it has ended.
  int64_t ResidentBytes() const;
  // How its TCP connections control congestion: "cubic", "bbr,cubic", "" without connections or
  // without the right to look.
  std::string CongestionControl() const;

 private:
  Child() = default;

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string unread_;
};

}  // namespace torchps
