#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace torchps {

// What `psctl run` shows while a job runs: lines that stay, and one row per worker that changes.
// On a terminal the rows stand below the lines and are overwritten in place; elsewhere (a file, a
// pipe) a row is printed as a line of its own, at most once per `row_interval`. Not thread-safe;
// borrows the stream and the clock.
class ProgressView {
 public:
  struct Options {
    bool terminal = false;
    int columns = 80;  // of the terminal; rows are cut to it
    absl::Duration row_interval = absl::Seconds(5);
  };

  // How much of the terminal on standard output there is to draw on.
  static Options OfTerminal();

  ProgressView(Options options, int rows, std::ostream& out, const Clock& clock);

  // A line that stays.
  void Say(absl::string_view line);
  // The row's new text. REQUIRES: 0 <= row < rows.
  void SetRow(int row, absl::string_view text);
  // The row's last text, shown whatever the interval.
  void FinishRow(int row, absl::string_view text);

 private:
  struct Row {
    std::string text;
    absl::Duration printed_at = -absl::InfiniteDuration();
  };

  void EraseRows();
  void DrawRows();
  void Show(int row, absl::string_view text, bool always);

  const Options options_;
  std::ostream& out_;
  const Clock& clock_;
  std::vector<Row> rows_;
  int drawn_ = 0;  // rows standing on the terminal below the last line
};

}  // namespace torchps
