#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/tools/base/status_line.h"

namespace torchps {

// Formats the workers' status lines for people.

// Returns, for example,
// "epoch 2/5   step    340   loss 0.1234    3,210 samples/s   waiting  4 %".
std::string ProgressText(const StatusLine& line, int epochs);

// Returns, for example,
// "epoch 2/5   test accuracy 93.50 %   test loss 0.2100   on 1,000 samples".
std::string EvaluationText(const StatusLine& line, int epochs);

// Shows the progress of `psctl run`: permanent lines, and one changing row per worker. On a
// terminal the rows follow the lines and are updated in place. Otherwise (file or pipe), each row
// is printed as a line, at most once per `row_interval`. Not thread-safe; borrows the stream and
// the clock.
class ProgressView {
 public:
  struct Options {
    bool terminal = false;
    int columns = 80;  // terminal width; longer rows are cut
    absl::Duration row_interval = absl::Seconds(5);
  };

  // Returns the options for standard output.
  static Options OfTerminal();

  ProgressView(Options options, int rows, std::ostream& out, const Clock& clock);

  // Prints a permanent line.
  void Print(absl::string_view line);
  // Changes the text of a row. REQUIRES: 0 <= row < rows.
  void SetRow(int row, absl::string_view text);
  // Sets the row's final text and shows it regardless of the interval.
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
  int drawn_ = 0;  // rows on the terminal after the last line
};

}  // namespace torchps
