#include "data/table/csv.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
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
constexpr int32_t kMaxLabel = 65535;

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

// As pandas, R, Weka and spreadsheets write what they do not have.
bool IsMissing(absl::string_view field) {
  if (field.empty()) return true;
  for (absl::string_view word : {"na", "n/a", "nan", "null", "none", "?", "-"}) {
    if (absl::EqualsIgnoreCase(field, word)) return true;
  }
  return false;
}

bool IsNumber(const std::string& field) {
  double number;
  return absl::SimpleAtod(field, &number);
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
  CsvReader(const std::string& path, const CsvColumns& columns) : path_(path), asked_(columns) {}

  absl::StatusOr<RowSet> Read(absl::string_view text) && {
    absl::Status status = ForEachLine(
        text, [this](int64_t number, absl::string_view line) { return VisitLine(number, line); });
    if (status.ok() && !predicts_numbers()) status = NumberClasses();
    if (!status.ok()) return status;
    if (rows_.size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": expected at least one row of numbers, got none",
          dropped_ > 0 ? absl::StrCat(" beside ", dropped_, " with a missing value") : ""));
    }
    return std::move(rows_);
  }

 private:
  enum class Role { kFeature, kLabel, kTarget };

  // A label as the file has it.
  struct Label {
    std::string text;
    int64_t line;
  };

  bool predicts_numbers() const { return !asked_.targets.empty(); }

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

  // Whether the first line holds names. A class may be a name in any line.
  bool LooksLikeHeader() const {
    size_t label = fields_.size();
    if (!predicts_numbers()) {
      uint64_t index;
      if (asked_.label.empty()) {
        label = fields_.size() - 1;
      } else if (absl::SimpleAtoi(asked_.label, &index)) {
        label = index;
      } else {
        return std::find(fields_.begin(), fields_.end(), asked_.label) != fields_.end() ||
               !std::all_of(fields_.begin(), fields_.end(), IsNumber);
      }
    }
    for (size_t c = 0; c < fields_.size(); ++c) {
      if (c != label && !IsMissing(fields_[c]) && !IsNumber(fields_[c])) return true;
    }
    return false;
  }

  // Settles the columns; `is_header` is set if the line holds names and no numbers.
  absl::Status TakeFirstLine(bool& is_header) {
    is_header = LooksLikeHeader();
    names_ = is_header ? fields_ : std::vector<std::string>(fields_.size());
    roles_.assign(names_.size(), Role::kFeature);
    if (predicts_numbers()) {
      for (const std::string& name : asked_.targets) {
        absl::StatusOr<size_t> column = FindColumn("data.csv.target_column", name, is_header);
        if (!column.ok()) return column.status();
        if (roles_[*column] == Role::kTarget) {
          return absl::InvalidArgumentError(absl::StrFormat(
              "%s: expected each data.csv.target_column once, got \"%s\" again", path_, name));
        }
        roles_[*column] = Role::kTarget;
        target_order_.push_back(*column);
        rows_.target_columns.push_back(names_[*column]);
      }
    } else {
      absl::StatusOr<size_t> column = names_.size() - 1;
      if (!asked_.label.empty()) {
        column = FindColumn("data.csv.label_column", asked_.label, is_header);
      }
      if (!column.ok()) return column.status();
      roles_[*column] = Role::kLabel;
      label_ = *column;
    }
    for (size_t c = 0; c < names_.size(); ++c) {
      if (roles_[c] == Role::kFeature) rows_.columns.push_back(names_[c]);
    }
    if (rows_.columns.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected at least one feature column beside what is predicted, got none", path_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> FindColumn(absl::string_view field, const std::string& name,
                                    bool is_header) const {
    const auto named = std::find(names_.begin(), names_.end(), name);
    if (named != names_.end() && !name.empty()) return named - names_.begin();
    uint64_t index;
    if (absl::SimpleAtoi(name, &index) && index < names_.size()) return index;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected %s to be a number of 0 to %d%s, got \"%s\"", path_, field, names_.size() - 1,
        is_header ? absl::StrCat(" or one of ", absl::StrJoin(names_, ", ")) : "", name));
  }

  absl::Status AddRow(int64_t number) {
    if (fields_.size() != names_.size()) {
      return absl::DataLossError(absl::StrFormat("%s: line %d: expected %d fields, got %d", path_,
                                                 number, names_.size(), fields_.size()));
    }
    for (size_t c = 0; c < fields_.size(); ++c) {
      if (!Lacks(c)) continue;
      if (asked_.missing == CsvColumns::Missing::kDropRow) {
        ++dropped_;
        return absl::OkStatus();
      }
      if (asked_.missing == CsvColumns::Missing::kRefuse || roles_[c] != Role::kFeature) {
        return BadMissing(number, c);
      }
    }
    for (size_t c = 0; c < fields_.size(); ++c) {
      if (roles_[c] != Role::kFeature) continue;
      double value = std::numeric_limits<double>::quiet_NaN();
      if (!Lacks(c) && !ToFloat(fields_[c], value)) return BadNumber(number, c);
      rows_.values.push_back(value);
    }
    for (size_t c : target_order_) {
      double value;
      if (!ToFloat(fields_[c], value)) return BadNumber(number, c);
      rows_.targets.push_back(static_cast<float>(value));
    }
    if (!predicts_numbers()) {
      labels_are_names_ = labels_are_names_ || !IsNumber(fields_[label_]);
      labels_.push_back({fields_[label_], number});
    }
    return absl::OkStatus();
  }

  bool Lacks(size_t c) const {
    return roles_[c] == Role::kLabel ? fields_[c].empty() : IsMissing(fields_[c]);
  }

  static bool ToFloat(const std::string& field, double& value) {
    return absl::SimpleAtod(field, &value) && std::abs(value) <= kMaxValue;
  }

  // Fills in rows_.labels, once all of them are known.
  absl::Status NumberClasses() {
    if (labels_are_names_) {
      std::set<std::string> names;
      for (const Label& label : labels_) {
        names.insert(label.text);
        if (names.size() > size_t{kMaxLabel} + 1) {
          return BadLabel(label, absl::StrCat("at most ", kMaxLabel + 1, " different classes"));
        }
      }
      rows_.class_names.assign(names.begin(), names.end());
    }
    rows_.labels.reserve(labels_.size());
    for (const Label& label : labels_) {
      if (labels_are_names_) {
        const auto& names = rows_.class_names;
        rows_.labels.push_back(std::lower_bound(names.begin(), names.end(), label.text) -
                               names.begin());
        continue;
      }
      double value;
      if (!absl::SimpleAtod(label.text, &value) ||
          !(value >= 0 && value <= kMaxLabel && value == std::floor(value))) {
        return BadLabel(label,
                        absl::StrCat("a class, an integer of 0 to ", kMaxLabel,
                                     " (numbers to predict are named by data.csv.target_column)"));
      }
      rows_.labels.push_back(static_cast<int32_t>(value));
    }
    return absl::OkStatus();
  }

  absl::Status BadNumber(int64_t number, size_t c) const {
    return Bad(number, c, "a number that float32 holds", fields_[c]);
  }

  absl::Status BadMissing(int64_t number, size_t c) const {
    const bool feature = roles_[c] == Role::kFeature;
    return Bad(number, c,
               absl::StrCat(roles_[c] == Role::kLabel ? "a class" : "a number that float32 holds",
                            ", not a missing value (data.csv.missing: ",
                            feature ? "COLUMN_MEAN or " : "", "DROP_ROW goes on without it)"),
               fields_[c]);
  }

  absl::Status BadLabel(const Label& label, absl::string_view expected) const {
    return Bad(label.line, label_, expected, label.text);
  }

  absl::Status Bad(int64_t number, size_t c, absl::string_view expected,
                   const std::string& got) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: line %d, column %d%s: expected %s, got \"%s\"", path_, number, c,
                        names_[c].empty() ? "" : absl::StrCat(" (", names_[c], ")"), expected,
                        got.substr(0, kShown)));
  }

  const std::string& path_;
  const CsvColumns& asked_;
  char separator_ = ',';
  // Of all columns, once the first line has been seen.
  std::vector<std::string> names_;
  std::vector<Role> roles_;
  std::vector<size_t> target_order_;
  size_t label_ = 0;                 // of no meaning where numbers are predicted
  std::vector<std::string> fields_;  // of the line at hand
  std::vector<Label> labels_;
  bool labels_are_names_ = false;
  int64_t dropped_ = 0;
  RowSet rows_;
};

}  // namespace

absl::StatusOr<RowSet> ReadCsv(const std::string& path, const CsvColumns& columns) {
  absl::StatusOr<std::string> text = ReadFileBytes(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(path, ": expected a CSV file, got none (name it with --data or data.path)"));
  }
  if (!text.ok()) return text.status();
  return CsvReader(path, columns).Read(*text);
}

}  // namespace torchps
