#include "torchps/data/table/csv.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/file/file_bytes.h"
#include "torchps/data/table/csv_classes.h"
#include "torchps/data/table/csv_field.h"
#include "torchps/data/table/csv_header.h"
#include "torchps/data/table/csv_layout.h"
#include "torchps/data/table/csv_text.h"

namespace torchps {
namespace {

using Fields = CsvText::Fields;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
// A column with more values is probably an id, not a category.
constexpr size_t kMaxCategories = 1000;
constexpr size_t kShownCategories = 20;

// Assigns numbers to distinct texts from 0, in the order of first occurrence.
class Dictionary {
 public:
  Dictionary() = default;
  explicit Dictionary(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) Add(text);
  }

  int32_t Add(const std::string& text) {
    const auto [found, is_new] = numbers_.emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return found->second;
  }

  std::optional<int32_t> Find(const std::string& text) const {
    const auto found = numbers_.find(text);
    return found == numbers_.end() ? std::nullopt : std::optional<int32_t>(found->second);
  }

  const std::vector<std::string>& texts() const { return texts_; }

 private:
  absl::flat_hash_map<std::string, int32_t> numbers_;
  std::vector<std::string> texts_;
};

class RowReader {
 public:
  RowReader(const CsvColumns& asked, CsvLayout layout, bool has_header, char separator)
      : asked_(asked),
        layout_(std::move(layout)),
        separator_(separator),
        needs_answers_(!asked.schema || asked.needs_answers),
        has_answers_(layout_.has_answers()) {
    rows_.had_header = has_header;
    for (size_t column : layout_.left_out) {
      const std::string& name = layout_.names[column];
      rows_.left_out.push_back(name.empty() ? absl::StrCat(column) : name);
    }
    if (layout_.label) rows_.label_column = layout_.names[*layout_.label];
    answers_ = layout_.targets;
    if (layout_.label) answers_.push_back(*layout_.label);
    if (asked.schema) {
      TakeSchema(*asked.schema);
    } else {
      TakeNames();
    }
  }

  absl::Status AddRow(int64_t line, const Fields& fields) {
    if (fields.size() != layout_.names.size()) {
      return absl::DataLossError(
          absl::StrFormat("line %d: expected %d fields as in the first line, got %d (a field that "
                          "holds '%c' needs double quotes)",
                          line, layout_.names.size(), fields.size(), separator_));
    }
    const absl::StatusOr<bool> is_complete = CheckMissing(line, fields);
    if (!is_complete.ok()) return is_complete.status();
    if (!*is_complete) {
      ++rows_.dropped;
      return absl::OkStatus();
    }
    ++rows_.rows;
    if (absl::Status status = AddFeatures(line, fields); !status.ok()) return status;
    return has_answers_ ? AddAnswers(line, fields) : absl::OkStatus();
  }

  absl::StatusOr<RowSet> Finish() && {
    if (rows_.rows == 0) return NoRows();
    if (has_answers_ && layout_.label) {
      if (absl::Status status = FinishClasses(); !status.ok()) return status;
    }
    if (!asked_.schema) SortCategories();
    rows_.has_answers = has_answers_;
    if (!has_answers_) {
      rows_.labels.clear();
      rows_.targets.clear();
    }
    return std::move(rows_);
  }

 private:
  void TakeNames() {
    for (size_t column : layout_.features) rows_.columns.push_back({layout_.names[column]});
    for (size_t column : layout_.targets) rows_.target_columns.push_back(layout_.names[column]);
    categories_.resize(layout_.features.size());
  }

  void TakeSchema(const TableSchema& schema) {
    rows_.columns = schema.columns;
    rows_.target_columns = schema.target_columns;
    rows_.class_names = schema.class_names;
    if (rows_.label_column.empty()) rows_.label_column = schema.label_column;
    for (const FeatureColumn& column : schema.columns) categories_.emplace_back(column.categories);
  }

  bool LacksAnswer(const Fields& fields, size_t column) const {
    return layout_.label ? fields[column].empty() : IsMissing(fields[column]);
  }

  // Returns true if the row is used, and false if it is dropped.
  absl::StatusOr<bool> CheckMissing(int64_t line, const Fields& fields) {
    const bool drops = asked_.missing == CsvColumns::Missing::kDropRow && needs_answers_;
    for (size_t column : layout_.features) {
      if (asked_.missing == CsvColumns::Missing::kKeep || !IsMissing(fields[column])) continue;
      if (drops) return false;
      return Bad(
          line, column,
          needs_answers_
              ? "a value, not a missing value (data.csv.missing: COLUMN_MEAN or DROP_ROW accepts "
                "it)"
              : "a value, not a missing value (a prediction does not drop rows; only a model "
                "trained with data.csv.missing: COLUMN_MEAN accepts it)",
          fields[column]);
    }
    for (size_t column : answers_) {
      if (!LacksAnswer(fields, column)) continue;
      if (!needs_answers_) {
        has_answers_ = false;
        continue;
      }
      if (drops) return false;
      return Bad(line, column,
                 absl::StrCat(layout_.label ? "a class" : "a number to predict",
                              ", not a missing value (data.csv.missing: DROP_ROW accepts it)"),
                 fields[column]);
    }
    return true;
  }

  absl::Status AddFeatures(int64_t line, const Fields& fields) {
    for (size_t i = 0; i < layout_.features.size(); ++i) {
      const size_t column = layout_.features[i];
      double value = kMissing;
      if (IsMissing(fields[column])) {
        // CheckMissing() has accepted it; `value` stays NaN
      } else if (layout_.is_category[i]) {
        const absl::StatusOr<double> category = ReadCategory(line, i, fields[column]);
        if (!category.ok()) return category.status();
        value = *category;
      } else if (!ReadNumber(fields[column], value)) {
        return Bad(line, column, ExpectedNumber(fields[column], !asked_.schema), fields[column]);
      }
      rows_.values.push_back(value);
    }
    return absl::OkStatus();
  }

  // Returns the category number of feature `i`.
  absl::StatusOr<double> ReadCategory(int64_t line, size_t i, const std::string& field) {
    Dictionary& categories = categories_[i];
    const size_t column = layout_.features[i];
    if (!asked_.schema) {
      const double category = categories.Add(field);
      if (categories.texts().size() <= kMaxCategories) return category;
      return Bad(line, column,
                 absl::StrCat("at most ", kMaxCategories,
                              " different categories (use data.csv.ignore_column for an id)"),
                 field);
    }
    if (const std::optional<int32_t> known = categories.Find(field)) return *known;
    if (asked_.allow_unknown_category) return kMissing;
    return Bad(line, column,
               absl::StrCat("a category that the model knows (",
                            ListNames(categories.texts(), kShownCategories),
                            "; data.csv.unknown_category: true accepts others)"),
               field);
  }

  absl::Status AddAnswers(int64_t line, const Fields& fields) {
    for (size_t column : layout_.targets) {
      double value;
      if (!ReadNumber(fields[column], value)) {
        if (needs_answers_) {
          return Bad(line, column, ExpectedNumber(fields[column], false), fields[column]);
        }
        has_answers_ = false;
        return absl::OkStatus();
      }
      rows_.targets.push_back(value);
    }
    if (!layout_.label) return absl::OkStatus();
    const std::string& label = fields[*layout_.label];
    rows_.labels.push_back(labels_.Add(label));
    if (labels_.texts().size() > label_lines_.size()) label_lines_.push_back(line);
    if (labels_.texts().size() <= size_t{kMaxClasses}) return absl::OkStatus();
    return Bad(
        line, *layout_.label,
        absl::StrCat("at most ", kMaxClasses,
                     " different classes (use data.csv.target_column for numbers to predict)"),
        label);
  }

  // Replaces the numbers that `labels_` gave to class texts by class numbers.
  absl::Status FinishClasses() {
    CsvClasses classes = asked_.schema ? FindClasses(labels_.texts(), *asked_.schema)
                                       : NumberClasses(labels_.texts(), rows_.rows);
    const auto bad = absl::c_find(classes.of_text, -1);
    if (bad != classes.of_text.end()) {
      if (!needs_answers_) {
        has_answers_ = false;
        return absl::OkStatus();
      }
      const size_t text = bad - classes.of_text.begin();
      return Bad(label_lines_[text], *layout_.label, classes.expected, labels_.texts()[text]);
    }
    for (int32_t& label : rows_.labels) label = classes.of_text[label];
    rows_.class_names = std::move(classes.names);
    return absl::OkStatus();
  }

  // Renumbers each column's categories in byte order.
  void SortCategories() {
    const size_t columns = layout_.features.size();
    for (size_t i = 0; i < columns; ++i) {
      const std::vector<std::string>& texts = categories_[i].texts();
      std::vector<std::string> sorted = texts;
      absl::c_sort(sorted);
      std::vector<double> place;
      for (const std::string& text : texts) {
        place.push_back(static_cast<double>(absl::c_lower_bound(sorted, text) - sorted.begin()));
      }
      rows_.columns[i].categories = std::move(sorted);
      if (!layout_.is_category[i]) continue;
      for (size_t at = i; at < rows_.values.size(); at += columns) {
        double& value = rows_.values[at];
        if (!std::isnan(value)) value = place[static_cast<size_t>(value)];
      }
    }
  }

  absl::Status NoRows() const {
    if (rows_.dropped > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected at least one complete row, got only ", rows_.dropped, " with a missing value"));
    }
    return absl::InvalidArgumentError("expected at least one row below the header, got none");
  }

  absl::Status Bad(int64_t line, size_t column, absl::string_view expected,
                   const std::string& got) const {
    return absl::InvalidArgumentError(absl::StrFormat("line %d, column %s: expected %s, got \"%s\"",
                                                      line, layout_.Describe(column), expected,
                                                      got.substr(0, kShownCharacters)));
  }

  const CsvColumns& asked_;
  const CsvLayout layout_;
  const char separator_;
  const bool needs_answers_;
  bool has_answers_;
  std::vector<size_t> answers_;         // the columns with the answers
  std::vector<Dictionary> categories_;  // by feature
  Dictionary labels_;
  std::vector<int64_t> label_lines_;  // the line where each text in `labels_` first occurs
  // Until Finish(), labels and categories are Dictionary numbers.
  RowSet rows_;
};

absl::StatusOr<RowSet> ReadTable(std::string bytes, const CsvColumns& columns) {
  const absl::StatusOr<CsvText> text = CsvText::Open(std::move(bytes));
  if (!text.ok()) return text.status();
  Fields first_line;
  const auto keep = [&](int64_t, const Fields& fields) {
    first_line = fields;
    return absl::OkStatus();
  };
  if (absl::Status status = text->ForEachLine(keep, 1); !status.ok()) return status;
  const absl::StatusOr<bool> has_header = HasHeader(*text, first_line, columns);
  if (!has_header.ok()) return has_header.status();
  absl::StatusOr<CsvLayout> layout = FindLayout(first_line, *has_header, columns);
  if (!layout.ok()) return layout.status();

  RowReader reader(columns, *std::move(layout), *has_header, text->separator());
  bool is_header = *has_header;
  absl::Status status = text->ForEachLine([&](int64_t line, const Fields& fields) {
    return std::exchange(is_header, false) ? absl::OkStatus() : reader.AddRow(line, fields);
  });
  if (!status.ok()) return status;
  return std::move(reader).Finish();
}

}  // namespace

absl::StatusOr<RowSet> ReadCsv(const std::string& path, const CsvColumns& columns) {
  absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(
        absl::StrCat(path, ": expected a CSV file, got none (name it with --data or data.path)"));
  }
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<RowSet> rows = ReadTable(*std::move(bytes), columns);
  if (rows.ok()) return rows;
  return absl::Status(rows.status().code(), absl::StrCat(path, ": ", rows.status().message()));
}

}  // namespace torchps
