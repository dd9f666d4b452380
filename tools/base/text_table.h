#pragma once

#include <string>
#include <vector>

namespace torchps {

// A table for a terminal: columns as wide as their widest cell, two blanks between them, no lines.
// Columns of text stand left; columns of numbers stand right, and a '>' before their title says so.
// A column without title and contents is left out. Not thread-safe.
//
//   TextTable table({">slot", "state"});
//   table.AddRow({"0", "training"});
//   std::cout << table.Format();
class TextTable {
 public:
  explicit TextTable(const std::vector<std::string>& titles);

  // Cells that a short row misses are "-"; a control character becomes a '?' (common/printable.h).
  // REQUIRES: no more cells than columns.
  void AddRow(std::vector<std::string> cells);

  // The titles and the rows, each line ending in a newline and in no blank.
  std::string Format() const;

 private:
  std::vector<bool> right_;                     // for each column
  std::vector<std::vector<std::string>> rows_;  // the titles first
};

}  // namespace torchps
