#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace torchps {

// Holds the error output of a torchps process. Lines wait briefly before they are shown, because
// the lines of a failing process belong to the failure message. Thread-compatible.
class BufferedOutput {
 public:
  // Long enough for a process to exit after the last line (unloading libtorch is slow), short
  // enough for the user.
  static constexpr absl::Duration kHold = absl::Seconds(1);

  // Adds a line, without the program's name; the caller adds the name when showing the line.
  void Add(absl::Duration now, absl::string_view line);

  // Returns true if lines are waiting.
  bool waiting() const { return !held_.empty(); }

  // Removes and returns the lines that arrived at `until` or before, oldest first.
  std::vector<std::string> Take(absl::Duration until);

  // Returns the waiting lines for the failure message, or the last line again if no line waits.
  std::vector<std::string> LastWords() const;

  // Discards the lines, for a restarted process.
  void Clear();

 private:
  std::deque<std::pair<absl::Duration, std::string>> held_;
  std::string last_;
};

}  // namespace torchps
