#pragma once

#include <string>
#include <vector>

namespace torchps {

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
  // (common/printable.h). REQUIRES: at most as many cells as columns.
  void AddRow(std::vector<std::string> cells);

  // Returns the titles and the rows. Each line ends with a newline, without trailing spaces.
  std::string Format() const;

 private:
  std::vector<bool> right_;                     // true if right-aligned, by column
  std::vector<std::vector<std::string>> rows_;  // first the titles
};

}  // namespace torchps
