#include "tools/base/text_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/check.h"
#include "common/printable.h"
#include "tools/base/format.h"

namespace torchps {

TextTable::TextTable(const std::vector<std::string>& titles) : rows_(1) {
  for (const std::string& title : titles) {
    right_.push_back(absl::StartsWith(title, ">"));
    rows_.front().push_back(title.substr(right_.back() ? 1 : 0));
  }
}

void TextTable::AddRow(std::vector<std::string> cells) {
  TPS_CHECK(cells.size() <= right_.size(), "a row has more cells than the table has columns");
  // Cells may contain text from machines that the user does not control.
  for (std::string& cell : cells) cell = Printable(cell);
  cells.resize(right_.size(), "-");
  rows_.push_back(std::move(cells));
}

std::string TextTable::Format() const {
  std::vector<int> width(right_.size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (width[i] == 0) continue;
      if (!line.empty()) line += "  ";
      const std::string padding(width[i] - DisplayWidth(row[i]), ' ');
      line += right_[i] ? padding + row[i] : row[i] + padding;
    }
    absl::StripTrailingAsciiWhitespace(&line);
    text += line + "\n";
  }
  return text;
}

}  // namespace torchps
