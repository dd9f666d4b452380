#include "tools/base/text_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/check.h"
#include "tools/base/format.h"

namespace torchps {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::AddRow(std::vector<std::string> cells) {
  TPS_CHECK(cells.size() <= columns_.size(), "a row has more cells than the table has columns");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::Format() const {
  std::vector<int> width;
  for (const Column& column : columns_) width.push_back(DisplayWidth(column.title));
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], DisplayWidth(row[i]));
  }

  std::string text;
  const auto add_line = [&](auto&& cell) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (width[i] == 0) continue;
      if (!line.empty()) line += "  ";
      const std::string& content = cell(i);
      const std::string padding(width[i] - DisplayWidth(content), ' ');
      line += columns_[i].alignment == kRight ? padding + content : content + padding;
    }
    absl::StripTrailingAsciiWhitespace(&line);
    text += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const std::vector<std::string>& row : rows_) {
    add_line([&](size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

}  // namespace torchps
