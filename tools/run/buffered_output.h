#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace torchps {

// What one of our programs says on its error stream. A line waits a moment before it is shown: if
// the process is failing, it belongs into the sentence that says so. Thread-compatible.
class BufferedOutput {
 public:
  // Long enough for a process to end after its last words (unloading libtorch takes its time),
  // short enough not to be missed.
  static constexpr absl::Duration kHold = absl::Seconds(1);

  // Without the program's name, which the caller that shows the line adds.
  void Add(absl::Duration now, absl::string_view line);

  // Whether a line waits.
  bool waiting() const { return !held_.empty(); }

  // The lines that came at `until` or before and have not been taken yet, oldest first.
  std::vector<std::string> Take(absl::Duration until);

  // For the sentence that says how the process failed: what has not been taken; if all has, the
  // last line once more.
  std::vector<std::string> LastWords() const;

  // What a next life begins with. What waited is gone.
  void Clear();

 private:
  std::deque<std::pair<absl::Duration, std::string>> held_;
  std::string last_;
};

}  // namespace torchps
