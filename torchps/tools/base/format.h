#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// Number formatting for people. Pure functions, independent of the locale.

namespace torchps {

// Formats 1234567 as "1,234,567".
std::string WithThousands(int64_t value);

// Formats a duration with about three digits: "41.2 s", "3 min 05 s", "2 h 07 min"; below one
// second, "120 ms".
std::string FormatSeconds(double seconds);

// Formats 1536 as "1.5 KiB".
std::string FormatBytes(double bytes);

// Formats 0.9731 as "97.31 %", with `decimals` digits after the point.
std::string FormatPercent(double fraction, int decimals);

// Returns the number of UTF-8 characters, used to align columns.
int DisplayWidth(absl::string_view text);

// Returns a loss with four decimals, for example "0.4019". Very large and very small ones have an
// exponent: "1.31e+21", "2.5e-05".
std::string FormatLoss(double loss);

// Returns, for example, "1 worker" or "3 workers".
std::string Count(int64_t number, absl::string_view noun);

// Quotes `text` for a POSIX shell if it contains any special characters.
std::string ShellQuoted(absl::string_view text);

// Formats a table for a terminal: columns as wide as their widest cell, separated by two spaces.
// Columns are left-aligned; a '>' before the title makes a column right-aligned, for numbers. Omits
// a column if its title and cells are empty. Not thread-safe.
//
//   TextTable table({">slot", "state"});
//   table.AddRow({"0", "training"});
//   std::cout << table.Format();
class TextTable {
 public:
  explicit TextTable(const std::vector<std::string>& titles);

  // Adds a row. Fills missing cells with "-" and replaces control characters with '?'
  // (torchps/common/text.h). REQUIRES: at most as many cells as columns.
  void AddRow(std::vector<std::string> cells);

  // Returns the titles and the rows. Each line ends with a newline, without trailing spaces.
  std::string Format() const;

 private:
  std::vector<bool> right_;                     // true if right-aligned, by column
  std::vector<std::vector<std::string>> rows_;  // first the titles
};

}  // namespace torchps
