#include "torchps/data/table/csv_layout.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace torchps {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kShownMissing = 5;

// Finds columns by name.
class NameIndex {
 public:
  // `names` must outlive the index.
  explicit NameIndex(const Names& names) : names_(names) {
    for (size_t column = 0; column < names.size(); ++column) {
      columns_[names[column]].push_back(column);
    }
  }

  // NOT_FOUND: the column does not exist. INVALID_ARGUMENT: two columns use this name.
  absl::StatusOr<size_t> Find(absl::string_view name) const {
    const auto found = columns_.find(name);
    if (found == columns_.end()) return absl::NotFoundError(name);
    const std::vector<size_t>& columns = found->second;
    if (columns.size() == 1) return columns[0];
    return absl::InvalidArgumentError(
        absl::StrFormat("expected one column named \"%s\", got columns %d and %d (rename one)",
                        name, columns[0], columns[1]));
  }

  // Finds the column for a CsvSpec field that contains a name or a number.
  absl::StatusOr<size_t> Find(absl::string_view field, const std::string& name) const {
    if (!name.empty()) {
      const absl::StatusOr<size_t> named = Find(name);
      if (!absl::IsNotFound(named.status())) return named;
    }
    uint64_t number;
    if (absl::SimpleAtoi(name, &number) && number < names_.size()) return number;
    const bool has_names = absl::c_any_of(names_, [](const auto& each) { return !each.empty(); });
    return absl::InvalidArgumentError(absl::StrFormat(
        "expected %s to be a number of 0 to %d%s, got \"%s\"", field, names_.size() - 1,
        has_names ? absl::StrCat(" or one of ", ListNames(names_, kShownNames)) : "", name));
  }

 private:
  const Names& names_;
  absl::flat_hash_map<absl::string_view, std::vector<size_t>> columns_;
};

// Assigns one purpose to each column.
class Purposes {
 public:
  explicit Purposes(const CsvLayout& layout)
      : layout_(layout), index_(layout.names), field_of_(layout.names.size()) {}

  // Assigns the column `name` to the purpose of a CsvSpec field.
  absl::StatusOr<size_t> Take(absl::string_view field, const std::string& name) {
    const absl::StatusOr<size_t> column = index_.Find(field, name);
    if (!column.ok()) return column;
    std::string& taken = field_of_[*column];
    if (!taken.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expected one purpose of column %s, got %s and %s",
                          layout_.Describe(*column), taken, field));
    }
    taken = std::string(field);
    return column;
  }

  absl::Status TakeAll(absl::string_view field, const Names& names, std::vector<size_t>& columns) {
    for (const std::string& name : names) {
      const absl::StatusOr<size_t> column = Take(field, name);
      if (!column.ok()) return column.status();
      columns.push_back(*column);
    }
    return absl::OkStatus();
  }

  // Checks the names of a model's features, if the file contains names.
  absl::Status CheckNames(const std::vector<size_t>& columns) const {
    if (absl::c_all_of(layout_.names, [](const auto& name) { return name.empty(); })) {
      return absl::OkStatus();
    }
    for (size_t column : columns) {
      const absl::Status found = index_.Find(layout_.names[column]).status();
      if (!found.ok()) return found;
    }
    return absl::OkStatus();
  }

  bool IsFree(size_t column) const { return field_of_[column].empty(); }

  // Makes the last column without a purpose the class column.
  std::optional<size_t> TakeLast() {
    for (size_t column = field_of_.size(); column-- > 0;) {
      if (!IsFree(column)) continue;
      field_of_[column] = "data.csv.label_column (the last column unless set)";
      return column;
    }
    return std::nullopt;
  }

 private:
  const CsvLayout& layout_;
  const NameIndex index_;
  std::vector<std::string> field_of_;  // empty: unassigned
};

absl::Status LayOutToTrain(const CsvColumns& columns, CsvLayout& layout) {
  Purposes purposes(layout);
  absl::Status status =
      purposes.TakeAll("data.csv.ignore_column", columns.ignored, layout.left_out);
  if (!status.ok()) return status;
  if (!columns.targets.empty()) {
    status = purposes.TakeAll("data.csv.target_column", columns.targets, layout.targets);
  } else if (!columns.label.empty()) {
    const absl::StatusOr<size_t> label = purposes.Take("data.csv.label_column", columns.label);
    status = label.status();
    if (label.ok()) layout.label = *label;
  } else {
    layout.label = purposes.TakeLast();
  }
  if (!status.ok()) return status;
  std::vector<size_t> categories;
  status = purposes.TakeAll("data.csv.category_column", columns.categories, categories);
  if (!status.ok()) return status;
  const bool has_names =
      absl::c_any_of(layout.names, [](const auto& name) { return !name.empty(); });
  for (size_t column = 0; column < layout.names.size(); ++column) {
    const bool is_category = absl::c_linear_search(categories, column);
    if (!is_category && !purposes.IsFree(column)) continue;
    // pandas and R write row numbers in a column without a name.
    if (!is_category && has_names && layout.names[column].empty()) {
      layout.left_out.push_back(column);
      continue;
    }
    layout.features.push_back(column);
    layout.is_category.push_back(is_category);
  }
  if (!layout.features.empty()) return purposes.CheckNames(layout.features);
  return absl::InvalidArgumentError(absl::StrCat(
      "expected at least one feature column besides the column to predict, got none",
      layout.names.size() > 1 ? ""
                              : " in the first line (',', ';', '|', a tab or spaces separate "
                                "columns; delete a title or comment above the header)"));
}

// Finds the answer columns, if the file contains all of them.
absl::Status FindAnswersByName(const CsvColumns& columns, const NameIndex& index,
                               CsvLayout& layout) {
  const TableSchema& schema = *columns.schema;
  const auto is_feature = [&](size_t c) { return absl::c_linear_search(layout.features, c); };
  Names missing;
  if (!schema.target_columns.empty()) {
    for (const std::string& name : schema.target_columns) {
      const absl::StatusOr<size_t> column = index.Find(name);
      if (absl::IsInvalidArgument(column.status())) return column.status();
      if (column.ok()) layout.targets.push_back(*column);
      if (!column.ok()) missing.push_back(name);
    }
    if (!missing.empty()) layout.targets.clear();
  } else if (!schema.label_column.empty()) {
    const absl::StatusOr<size_t> column = index.Find(schema.label_column);
    if (absl::IsInvalidArgument(column.status())) return column.status();
    if (column.ok()) layout.label = *column;
    if (!column.ok()) missing.push_back(schema.label_column);
  } else {
    // Older model files do not contain the name of the class column.
    const std::string last = absl::StrCat(layout.names.size() - 1);
    const absl::StatusOr<size_t> column =
        index.Find("data.csv.label_column", columns.label.empty() ? last : columns.label);
    if (column.ok() && !is_feature(*column)) layout.label = *column;
    if (!layout.label) missing.push_back(columns.label.empty() ? "of the class" : columns.label);
  }
  if (missing.empty() || !columns.needs_answers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("expected the answers in column %s, got columns %s",
                      ListNames(missing, kShownMissing), ListNames(layout.names, kShownNames)));
}

absl::Status MissingNames(const Names& missing, const Names& names) {
  std::string hint;
  for (const std::string& name : missing) {
    const auto alike = absl::c_find_if(
        names, [&](const std::string& other) { return absl::EqualsIgnoreCase(name, other); });
    if (alike == names.end()) continue;
    hint = absl::StrFormat(" (\"%s\" differs from \"%s\" in upper and lower case)", *alike, name);
    break;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("expected the model's columns, got none named %s among %s%s",
                      ListNames(missing, kShownMissing), ListNames(names, kShownNames), hint));
}

absl::Status LayOutByName(const CsvColumns& columns, CsvLayout& layout) {
  const NameIndex index(layout.names);
  Names missing;
  for (const FeatureColumn& feature : columns.schema->columns) {
    const absl::StatusOr<size_t> column = index.Find(feature.name);
    if (absl::IsInvalidArgument(column.status())) return column.status();
    if (column.ok()) layout.features.push_back(*column);
    if (!column.ok()) missing.push_back(feature.name);
  }
  if (!missing.empty()) return MissingNames(missing, layout.names);
  if (absl::Status status = FindAnswersByName(columns, index, layout); !status.ok()) return status;
  std::vector<bool> is_read(layout.names.size());
  for (size_t column : layout.features) is_read[column] = true;
  for (size_t column : layout.targets) is_read[column] = true;
  if (layout.label) is_read[*layout.label] = true;
  for (size_t column = 0; column < is_read.size(); ++column) {
    if (!is_read[column]) layout.left_out.push_back(column);
  }
  return absl::OkStatus();
}

// Removes the answer columns from a layout, for a file without answers.
void RemoveAnswers(CsvLayout& layout) {
  std::vector<size_t> answers = layout.targets;
  if (layout.label) answers.push_back(*layout.label);
  const auto move = [&answers](size_t& column) {
    column -= absl::c_count_if(answers, [column](size_t answer) { return answer < column; });
  };
  absl::c_for_each(layout.features, move);
  absl::c_for_each(layout.left_out, move);
  layout.label.reset();
  layout.targets.clear();
}

absl::Status LayOutByPosition(const CsvColumns& columns, CsvLayout& layout) {
  const size_t features = columns.schema->columns.size();
  const size_t answers = std::max<size_t>(columns.schema->target_columns.size(), 1);
  const size_t without_answers = features + columns.ignored.size();
  const size_t size = layout.names.size();
  CsvLayout trained;
  trained.names.resize(without_answers + answers);
  if (absl::Status status = LayOutToTrain(columns, trained); !status.ok()) return status;
  if (trained.features.size() != features ||
      (size != features && size != without_answers && size != trained.names.size())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expected %d columns (the model's features), or %d with the answers as in its training "
        "file, got %d",
        features, without_answers + answers, size));
  }
  if (size == features) {
    trained = CsvLayout();
    trained.features.resize(features);
    std::iota(trained.features.begin(), trained.features.end(), size_t{0});
  } else if (size == without_answers) {
    RemoveAnswers(trained);
  }
  trained.names = std::move(layout.names);
  layout = std::move(trained);
  if (layout.has_answers() || !columns.needs_answers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("expected %d columns with the answers, got %d",
                                                    without_answers + answers, size));
}

absl::Status NeedsHeader(const TableSchema& schema) {
  Names names;
  for (const FeatureColumn& column : schema.columns) names.push_back(column.name);
  return absl::InvalidArgumentError(absl::StrCat(
      "expected a first line with the names of the model's columns (",
      ListNames(names, kShownNames), "), got a line without any of them (add such a header)"));
}

}  // namespace

std::string CsvLayout::Describe(size_t column) const {
  const std::string name = names[column].substr(0, kShownCharacters);
  return name.empty() ? absl::StrCat(column) : absl::StrCat(column, " (", name, ")");
}

bool HasNames(const TableSchema& schema) {
  return absl::c_any_of(schema.columns, [](const auto& column) { return !column.name.empty(); });
}

std::string ListNames(const std::vector<std::string>& names, size_t shown) {
  const size_t some = std::min(names.size(), shown);
  const auto append = [](std::string* list, absl::string_view name) {
    absl::StrAppend(list, name.substr(0, kShownCharacters));
  };
  std::string list = absl::StrJoin(names.begin(), names.begin() + some, ", ", append);
  if (names.size() > some) absl::StrAppend(&list, " and ", names.size() - some, " more");
  return list;
}

absl::StatusOr<CsvLayout> FindLayout(const std::vector<std::string>& first_line, bool has_header,
                                     const CsvColumns& columns) {
  CsvLayout layout;
  layout.names = has_header ? first_line : Names(first_line.size());
  absl::Status status;
  if (!columns.schema) {
    status = LayOutToTrain(columns, layout);
  } else if (!HasNames(*columns.schema)) {
    status = LayOutByPosition(columns, layout);
  } else if (has_header) {
    status = LayOutByName(columns, layout);
  } else {
    status = NeedsHeader(*columns.schema);
  }
  if (!status.ok()) return status;
  if (columns.schema) {
    layout.is_category.clear();
    for (const FeatureColumn& column : columns.schema->columns) {
      layout.is_category.push_back(!column.categories.empty());
    }
  }
  return layout;
}

}  // namespace torchps
