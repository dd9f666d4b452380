#pragma once

#include <string>
#include <vector>

namespace torchps {

// A table for a terminal: columns as wide as their widest cell, two blanks between them, no lines.
// Columns of text stand left, columns of numbers right. A column without title and contents is left
// out. Not thread-safe.
//
//   TextTable table({{"slot", TextTable::kRight}, {"state"}});
//   table.AddRow({"0", "training"});
//   std::cout << table.Format();
class TextTable {
 public:
  enum Alignment { kLeft, kRight };
  struct Column {
    std::string title;
    Alignment alignment = kLeft;
  };

  explicit TextTable(std::vector<Column> columns);

  // Missing cells are empty. REQUIRES: no more cells than columns.
  void AddRow(std::vector<std::string> cells);

  // The titles and the rows, each line ending in a newline and in no blank.
  std::string Format() const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace torchps
