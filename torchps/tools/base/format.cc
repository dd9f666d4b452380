#include "torchps/tools/base/format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "torchps/common/check.h"
#include "torchps/common/text.h"

namespace torchps {

std::string WithThousands(int64_t value) {
  const std::string digits = absl::StrCat(value);
  const size_t sign = value < 0 ? 1 : 0;
  std::string text = digits.substr(0, sign);
  for (size_t i = sign; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatSeconds(double seconds) {
  // The limits are the values that would round up to the next unit.
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1000);
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 99.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
}

std::string FormatBytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 || bytes >= 99.95 ? 0 : 1, bytes, kUnits[unit]);
}

std::string FormatPercent(double fraction, int decimals) {
  return absl::StrFormat("%.*f %%", decimals, fraction * 100);
}

std::string FormatLoss(double loss) {
  if (std::isnan(loss)) return "nan";  // StrFormat may print "-nan"
  const double size = std::abs(loss);
  return size >= 1e6 || (size > 0 && size < 1e-3) ? absl::StrFormat("%.3g", loss)
                                                  : absl::StrFormat("%.4f", loss);
}

int DisplayWidth(absl::string_view text) {
  // Counts the bytes that are not UTF-8 continuation bytes.
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Count(int64_t number, absl::string_view noun) {
  return absl::StrCat(WithThousands(number), " ", noun, number == 1 ? "" : "s");
}

std::string ShellQuoted(absl::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) ||
           absl::string_view("-_./=:,@%+").find(c) != absl::string_view::npos;
  });
  if (plain) return std::string(text);
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

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
