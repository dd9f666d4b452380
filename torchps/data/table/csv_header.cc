#include "torchps/data/table/csv_header.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "torchps/data/table/csv_classes.h"
#include "torchps/data/table/csv_field.h"
#include "torchps/data/table/csv_layout.h"

namespace torchps {
namespace {

using Numbers = std::vector<double>;

// With fewer rows, line 1 may be out of the other rows' range by chance.
constexpr int64_t kEnoughRows = 5;
// If there are fewer rows per class, a class that occurs only in line 1 may be a rare class and not
// a column's name.
constexpr int64_t kManyRows = 10;
// Line 1 is a header if a row would contain these values with less than this probability.
constexpr double kSmallChance = 4e-3;

double ToNumber(const std::string& field) {
  double number;
  return absl::SimpleAtod(field, &number) ? number : std::numeric_limits<double>::quiet_NaN();
}

// True if a field contains only digits, after an optional sign.
bool IsWhole(absl::string_view field) {
  if (!field.empty() && (field[0] == '-' || field[0] == '+')) field.remove_prefix(1);
  return !field.empty() && absl::c_all_of(field, absl::ascii_isdigit);
}

bool IsRising(const Numbers& numbers) {
  return absl::c_adjacent_find(numbers, [](double a, double b) { return !(a < b); }) ==
         numbers.end();
}

// True if the numbers rise in equal steps. False for fewer than three numbers, because two numbers
// do not show that steps are equal.
bool IsSteady(const Numbers& numbers) {
  if (numbers.size() < 3 || !IsRising(numbers)) return false;
  const double step = numbers[1] - numbers[0];
  for (size_t i = 2; i < numbers.size(); ++i) {
    if (std::abs(numbers[i] - numbers[i - 1] - step) > 1e-6 * step) return false;
  }
  return true;
}

Numbers Sorted(Numbers numbers) {
  absl::c_sort(numbers);
  return numbers;
}

// Compares the field of line 1 in a numeric column with the values below it.
class NumberColumn {
 public:
  NumberColumn(size_t column, const std::string& first)
      : column_(column),
        first_(ToNumber(first)),
        first_is_whole_(IsWhole(first)),
        previous_(first_) {}

  size_t column() const { return column_; }

  void Add(const std::string& field, double value) {
    if (std::isnan(value)) return;
    ++values_;
    same_ += value == first_;
    any_whole_ = any_whole_ || IsWhole(field);
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    rises_ = rises_ && value > previous_;
    falls_ = falls_ && value < previous_;
    previous_ = value;
  }

  // Returns the estimated probability that a row has line 1's value in this column.
  double Chance() const { return (same_ + 1.0) / (values_ + 1.0); }
  // True if line 1 does not fit this column: it is a whole number while the rows below are
  // decimals, or it is outside their range. Line 1 always fits a column that only rises or only
  // falls, such as a time series or an index.
  bool StandsOut() const {
    if (rises_ || falls_) return false;
    const bool is_out_of_range = first_ < min_ || first_ > max_;
    return (first_is_whole_ && !any_whole_) || (is_out_of_range && values_ >= kEnoughRows);
  }

 private:
  const size_t column_;
  const double first_;
  const bool first_is_whole_;
  int64_t values_ = 0;
  int64_t same_ = 0;  // values equal to line 1
  bool any_whole_ = false;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  bool rises_ = true;
  bool falls_ = true;
  double previous_;
};

// Compares the field of line 1 in a class or category column with the values below it.
class ClassColumn {
 public:
  ClassColumn(size_t column, const std::string& first)
      : column_(column), first_(first), first_number_(ToNumber(first)) {}

  size_t column() const { return column_; }
  bool first_is_number() const { return !std::isnan(first_number_); }

  void Add(const std::string& field) {
    const double number = ToNumber(field);
    same_ += field == first_ || number == first_number_;
    ++values_;
    numbers_ += !std::isnan(number);
    if (distinct_.size() < static_cast<size_t>(kMaxClasses)) distinct_.insert(field);
  }

  int64_t classes() const { return distinct_.size(); }
  bool Recurs() const { return same_ > 0; }
  double Chance() const { return (same_ + 1.0) / (values_ + 1.0); }
  // True if line 1 is a number above text, or text above numbers.
  bool IsOfOtherKind() const {
    return values_ > 0 && numbers_ == (first_is_number() ? 0 : values_);
  }
  // True if line 1's value does not occur in the rows below, but these rows repeat values.
  bool StandsOut() const { return !Recurs() && 2 * classes() <= values_; }

 private:
  const size_t column_;
  const std::string first_;
  const double first_number_;
  int64_t values_ = 0;
  int64_t same_ = 0;  // values equal to line 1
  int64_t numbers_ = 0;
  absl::flat_hash_set<std::string> distinct_;
};

// Distinguishes a header of numbers, such as 0,1,2,3 or 2019,2020,2021,kind, from a row.
//
// In a header, all names differ, and the names of the features rise. The name of the answer
// continues their equal steps, or is a class that does not occur in the rows. In addition, one of
// these must hold:
//   - Most columns do not contain values like their name.
//   - The names are 0, 1, 2, ..., the rows do not rise like this, and a row with these values is
//     unlikely.
//
// In doubt line 1 is a row, because a lost sample is hard to notice.
class HeaderOfNumbers {
 public:
  HeaderOfNumbers(const CsvText::Fields& line, const CsvLayout& layout) : line_(line) {
    for (size_t i = 0; i < layout.features.size(); ++i) {
      const size_t column = layout.features[i];
      // A data frame's index column does not have a name.
      if (column == 0 && line[0].empty()) continue;
      if (layout.is_category[i]) {
        classes_.emplace_back(column, line[column]);
      } else {
        features_.emplace_back(column, line[column]);
      }
    }
    for (size_t column : layout.targets) targets_.emplace_back(column, line[column]);
    if (layout.label) label_.emplace(*layout.label, line[*layout.label]);
    first_features_ = GetFeatures(line);
    first_numbers_ = GetNumbers(line);
  }

  // True if line 1 could be a header.
  bool IsPossible() const {
    std::set<std::string> distinct;
    for (size_t column = 0; column < line_.size(); ++column) {
      if (line_[column].empty() && column > 0) return false;
      if (!distinct.insert(line_[column]).second) return false;
    }
    const bool whole = absl::c_all_of(
        features_, [&](const NumberColumn& each) { return IsWhole(line_[each.column()]); });
    return IsRising(first_features_) && (whole || IsSteady(first_features_)) &&
           (label_ || features_.empty() || IsSteady(first_numbers_));
  }

  void AddRow(const CsvText::Fields& fields) {
    if (fields.size() != line_.size()) return;  // reading the row reports the error
    const Numbers row = GetFeatures(fields);
    for (size_t i = 0; i < row.size(); ++i) features_[i].Add(fields[features_[i].column()], row[i]);
    for (NumberColumn& each : targets_) {
      each.Add(fields[each.column()], ToNumber(fields[each.column()]));
    }
    for (ClassColumn& each : classes_) each.Add(fields[each.column()]);
    if (label_) label_->Add(fields[label_->column()]);
    if (rows_ == 0 && !row.empty()) continues_ = row[0] == first_features_[0] + 1;
    ++rows_;
    steady_rows_ += IsSteady(GetNumbers(fields));
    alike_rows_ += IsRising(row) || Sorted(row) == first_features_;
  }

  bool IsHeader() const {
    if (rows_ < (HasSteps() && first_numbers_.size() >= 4 ? 2 : kEnoughRows) || HasKnownText() ||
        !HasNameOfAnswer())
      return false;
    if (features_.empty()) return Contrast() == Columns();
    if (label_ && label_->IsOfOtherKind()) return true;
    // This requires three columns, because the values of two features rise by chance in half of the
    // rows.
    if (Columns() >= 3 && Contrast() == Columns()) return true;
    return !HasSimilarRows() && (StandsOut() || IsUnlikely());
  }

 private:
  Numbers GetFeatures(const CsvText::Fields& fields) const {
    Numbers numbers;
    for (const NumberColumn& each : features_) numbers.push_back(ToNumber(fields[each.column()]));
    return numbers;
  }

  // Returns the values of the columns where line 1 contains a number.
  Numbers GetNumbers(const CsvText::Fields& fields) const {
    Numbers numbers;
    for (size_t column = 0; column < fields.size(); ++column) {
      if (IsNumber(line_[column])) numbers.push_back(ToNumber(fields[column]));
    }
    return numbers;
  }

  // True if the numbers of line 1, or of the features, rise in equal steps.
  bool HasSteps() const { return IsSteady(first_numbers_) || IsSteady(first_features_); }

  // True if a text in line 1 also occurs as a class or category in a row.
  bool HasKnownText() const {
    const auto is_known = [](const ClassColumn& each) {
      return each.Recurs() && !each.first_is_number();
    };
    return absl::c_any_of(classes_, is_known) || (label_ && is_known(*label_));
  }

  bool HasNewClass() const { return label_ && (label_->StandsOut() || label_->IsOfOtherKind()); }

  bool HasNameOfAnswer() const {
    return HasNewClass() || (IsSteady(first_numbers_) && (!label_ || label_->first_is_number()));
  }

  bool HasSimilarRows() const { return 2 * (HasSteps() ? steady_rows_ : alike_rows_) >= rows_; }

  // True if most columns lack values like line 1's. All columns must lack them if line 1 does not
  // rise in equal steps.
  bool StandsOut() const {
    return Contrast() >= 2 && (HasSteps() ? 2 * Contrast() >= Columns() : Contrast() == Columns());
  }

  // True if line 1 has an order that most rows lack, and a row with these values is unlikely.
  bool IsUnlikely() const {
    const bool has_order =
        CountsFromZero() || (HasNewClass() && features_.size() >= 3 &&
                             (IsSteady(first_features_) || rows_ >= kManyRows * label_->classes()));
    return has_order && rows_ >= kEnoughRows && !continues_ && 2 * alike_rows_ < rows_ &&
           Chance() < kSmallChance;
  }

  int64_t Columns() const {
    return features_.size() + targets_.size() + classes_.size() + (label_ ? 1 : 0);
  }

  // Returns the number of columns without values like line 1's.
  int64_t Contrast() const {
    const auto stands_out = [](const auto& each) { return each.StandsOut(); };
    return absl::c_count_if(features_, stands_out) + absl::c_count_if(targets_, stands_out) +
           absl::c_count_if(classes_, stands_out) + (label_ && label_->StandsOut() ? 1 : 0);
  }

  // Returns the probability that a row contains all values of line 1.
  double Chance() const {
    double chance = label_ ? label_->Chance() : 1;
    for (const NumberColumn& each : features_) chance *= each.Chance();
    for (const NumberColumn& each : targets_) chance *= each.Chance();
    for (const ClassColumn& each : classes_) chance *= each.Chance();
    return chance;
  }

  bool CountsFromZero() const {
    return IsSteady(first_numbers_) && first_numbers_.size() >= 4 && first_numbers_[0] == 0 &&
           first_numbers_[1] == 1 && (!label_ || label_->first_is_number());
  }

  const CsvText::Fields& line_;
  std::vector<NumberColumn> features_;
  std::vector<NumberColumn> targets_;
  std::vector<ClassColumn> classes_;
  std::optional<ClassColumn> label_;
  Numbers first_features_;
  Numbers first_numbers_;
  int64_t rows_ = 0;
  int64_t steady_rows_ = 0;
  int64_t alike_rows_ = 0;  // rows that rise, or contain the first line's numbers in another order
  bool continues_ = false;  // the first number of line 2 is that of line 1, plus one
};

// True if `columns` names a column by a text that is in the line, and not by the column's number.
bool HasAskedName(const CsvText::Fields& line, const CsvColumns& columns) {
  const auto is_name = [&line](const std::string& name) {
    uint64_t number;
    const bool is_number = absl::SimpleAtoi(name, &number) && number < line.size();
    return !name.empty() && !is_number && absl::c_linear_search(line, name);
  };
  return is_name(columns.label) || absl::c_any_of(columns.targets, is_name) ||
         absl::c_any_of(columns.ignored, is_name) || absl::c_any_of(columns.categories, is_name);
}

// True if a line contains a name of a schema. Ignores upper and lower case; FindLayout() then
// reports that a name's case differs.
bool HasNameOf(const TableSchema& schema, const CsvText::Fields& line) {
  absl::flat_hash_set<std::string> fields;
  for (const std::string& field : line) fields.insert(absl::AsciiStrToLower(field));
  const auto is_in_line = [&fields](const std::string& name) {
    return !name.empty() && fields.contains(absl::AsciiStrToLower(name));
  };
  return absl::c_any_of(schema.columns, [&](const auto& each) { return is_in_line(each.name); }) ||
         is_in_line(schema.label_column) || absl::c_any_of(schema.target_columns, is_in_line);
}

// True if the line contains text in a numeric column.
bool HasTextForNumber(const CsvText::Fields& line, const CsvLayout& layout) {
  const auto is_text = [&line](size_t column) {
    return !IsMissing(line[column]) && !IsNumber(line[column]);
  };
  for (size_t i = 0; i < layout.features.size(); ++i) {
    if (!layout.is_category[i] && is_text(layout.features[i])) return true;
  }
  return absl::c_any_of(layout.targets, is_text);
}

}  // namespace

absl::StatusOr<bool> HasHeader(const CsvText& text, const CsvText::Fields& first_line,
                               const CsvColumns& columns) {
  if (columns.header) return *columns.header;
  if (columns.schema && HasNames(*columns.schema)) return HasNameOf(*columns.schema, first_line);
  if (HasAskedName(first_line, columns)) return true;
  const absl::StatusOr<CsvLayout> layout = FindLayout(first_line, false, columns);
  // FindLayout() failed, because `columns` has a name that is not in the line, or a number that is
  // too large. ReadTable() will call it again and report the error.
  if (!layout.ok()) return !absl::c_all_of(first_line, IsNumber);
  if (HasTextForNumber(first_line, *layout)) return true;
  HeaderOfNumbers header(first_line, *layout);
  if (!header.IsPossible()) return false;
  bool is_first = true;
  absl::Status status = text.ForEachLine([&](int64_t, const CsvText::Fields& fields) {
    if (!is_first) header.AddRow(fields);
    is_first = false;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return header.IsHeader();
}

}  // namespace torchps
