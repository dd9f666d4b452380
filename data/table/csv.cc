#include "data/table/csv.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "data/file/file_bytes.h"

namespace torchps {
namespace {

// A model's last layer has a row per class, so that a stray large label would ask for gigabytes.
constexpr double kMaxLabel = 65535;

// Batches are float32.
constexpr double kMaxValue = std::numeric_limits<float>::max();

// At most so many characters of a bad field are shown.
constexpr size_t kShown = 40;

char Separator(absl::string_view line) {
  char best = ',';
  for (char candidate : {',', ';', '\t'}) {
    if (std::count(line.begin(), line.end(), candidate) >
        std::count(line.begin(), line.end(), best)) {
      best = candidate;
    }
  }
  return best;
}

// False if a quote is not closed.
bool SplitFields(absl::string_view line, char separator, std::vector<std::string>& fields) {
  fields.clear();
  std::string field;
  bool quoted = false;   // inside quotes
  bool literal = false;  // had quotes: its spaces count
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i == line.size() || (line[i] == separator && !quoted)) {
      if (quoted) return false;
      if (!literal) absl::StripAsciiWhitespace(&field);
      fields.push_back(std::move(field));
      field.clear();
      literal = false;
    } else if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      field += '"';
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
      if (!literal) absl::StripAsciiWhitespace(&field);
      literal = true;
    } else if (!(literal && !quoted)) {
      field += line[i];
    }
  }
  return true;
}

// Calls `visit(line number from 1, line)` for each line that is not blank, until one fails.
template <typename Visit>
absl::Status ForEachLine(absl::string_view text, const Visit& visit) {
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    if (absl::Status status = visit(number, line); !status.ok()) return status;
  }
  return absl::OkStatus();
}

class CsvReader {
 public:
  CsvReader(const std::string& path, const std::string& label_column)
      : path_(path), label_column_(label_column) {}

  absl::StatusOr<RowSet> Read(absl::string_view text) && {
    absl::Status status = ForEachLine(
        text, [this](int64_t number, absl::string_view line) { return VisitLine(number, line); });
    if (!status.ok()) return status;
    if (rows_.labels.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": expected at least one row of numbers, got none"));
    }
    return std::move(rows_);
  }

 private:
  absl::Status VisitLine(int64_t number, absl::string_view line) {
    const bool first = names_.empty();
    if (first) separator_ = Separator(line);
    if (!SplitFields(line, separator_, fields_)) {
      return absl::DataLossError(absl::StrFormat(
          "%s: line %d: expected a closing quote, got the end of the line", path_, number));
    }
    if (first) {
      bool is_header = false;
      if (absl::Status status = TakeFirstLine(is_header); !status.ok() || is_header) return status;
    }
    return AddRow(number);
  }

  // Settles the columns; `is_header` is set if the line holds names and no numbers.
  absl::Status TakeFirstLine(bool& is_header) {
    double number;
    is_header = !std::all_of(fields_.begin(), fields_.end(), [&number](const std::string& field) {
      return absl::SimpleAtod(field, &number);
    });
    names_ = is_header ? fields_ : std::vector<std::string>(fields_.size());
    if (names_.size() < 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": expected a label column and at least one feature column, got one column"));
    }
    const auto named = std::find(names_.begin(), names_.end(), label_column_);
    uint64_t index;
    if (label_column_.empty()) {
      label_ = names_.size() - 1;
    } else if (named != names_.end()) {
      label_ = named - names_.begin();
    } else if (absl::SimpleAtoi(label_column_, &index) && index < names_.size()) {
      label_ = index;
    } else {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected data.csv.label_column to be a number of 0 to %d%s, got \"%s\"", path_,
          names_.size() - 1,
          is_header ? absl::StrCat(" or one of ", absl::StrJoin(names_, ", ")) : "",
          label_column_));
    }
    for (size_t c = 0; c < names_.size(); ++c) {
      if (c != label_) rows_.columns.push_back(names_[c]);
    }
    return absl::OkStatus();
  }

  absl::Status AddRow(int64_t number) {
    if (fields_.size() != names_.size()) {
      return absl::DataLossError(absl::StrFormat("%s: line %d: expected %d fields, got %d", path_,
                                                 number, names_.size(), fields_.size()));
    }
    for (size_t c = 0; c < fields_.size(); ++c) {
      double value;
      if (!absl::SimpleAtod(fields_[c], &value) || !(std::abs(value) <= kMaxValue)) {
        return Bad(number, c, "a number that float32 holds");
      }
      if (c != label_) {
        rows_.values.push_back(value);
      } else if (value < 0 || value > kMaxLabel || value != std::floor(value)) {
        return Bad(number, c, "a class, an integer of 0 to 65535");
      } else {
        rows_.labels.push_back(static_cast<int32_t>(value));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Bad(int64_t number, size_t column, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: line %d, column %d%s: expected %s, got \"%s\"", path_, number, column,
                        names_[column].empty() ? "" : absl::StrCat(" (", names_[column], ")"),
                        expected, fields_[column].substr(0, kShown)));
  }

  const std::string& path_;
  const std::string& label_column_;
  char separator_ = ',';
  std::vector<std::string> names_;  // of all columns, once the first line has been seen
  size_t label_ = 0;
  std::vector<std::string> fields_;  // of the line at hand
  RowSet rows_;
};

}  // namespace

absl::StatusOr<RowSet> ReadCsv(const std::string& path, const std::string& label_column) {
  absl::StatusOr<std::string> text = ReadFileBytes(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(path, ": expected a CSV file, got none (name it with --data or data.path)"));
  }
  if (!text.ok()) return text.status();
  return CsvReader(path, label_column).Read(*text);
}

}  // namespace torchps
