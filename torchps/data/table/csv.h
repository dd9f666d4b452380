#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace torchps {

// A table column that a model uses as input.
struct FeatureColumn {
  std::string name;  // empty if the file does not have a header
  // The values of a category, in byte order; empty for a numeric column.
  std::vector<std::string> categories = {};
};

// The rows of a table. Each row contains a class, numbers to predict, or neither. Does not depend
// on torch.
struct RowSet {
  std::vector<FeatureColumn> columns;
  // Row by row, columns.size() in each: a number, or an index in FeatureColumn::categories. NaN: a
  // missing value, or an unknown category.
  std::vector<double> values;

  // The class of each row, from 0. Empty if there are targets, or no answers.
  std::vector<int32_t> labels;
  // The name of each class. Empty: classes are numbers.
  std::vector<std::string> class_names;
  std::string label_column;  // empty if the file does not have a header

  // The names of the numbers to predict, as empty strings if the file does not have a header. Empty
  // if there are classes.
  std::vector<std::string> target_columns;
  std::vector<double> targets;  // row by row, target_columns.size() in each

  int64_t rows = 0;
  bool has_answers = true;  // true if each row contains a class or targets
  bool had_header = false;
  int64_t dropped = 0;                // rows dropped because of a missing value
  std::vector<std::string> left_out;  // the ignored columns: names, or numbers without a header
};

// The columns and classes of a trained model.
struct TableSchema {
  std::vector<FeatureColumn> columns;       // in the order of the model's inputs
  std::string label_column;                 // empty: the training file did not have a header
  std::vector<std::string> class_names;     // empty: classes are numbers, or there are no classes
  int64_t classes = 0;                      // 0: the model predicts numbers
  std::vector<std::string> target_columns;  // the predicted numbers
};

// Selects the columns of a CSV file, by the name in the header or by number from 0.
struct CsvColumns {
  // The class column. Empty: the last column that is not ignored.
  std::string label;
  // Columns with numbers to predict instead of a class, in this order.
  std::vector<std::string> targets = {};
  // Columns to ignore.
  std::vector<std::string> ignored = {};
  // Columns with categories.
  std::vector<std::string> categories = {};
  // Only used with `schema`. If true, an unknown category becomes NaN; otherwise it is refused.
  bool allow_unknown_category = false;
  // True if the first line is a header. Unset: the reader detects it from the lines.
  std::optional<bool> header = std::nullopt;

  // The handling of missing values. A field is missing if it is empty, NA, N/A, NaN, null, none, ?
  // or -, in upper or lower case. A class is missing only if the field is empty: other words may be
  // names.
  enum class Missing {
    kRefuse,   // INVALID_ARGUMENT
    kKeep,     // NaN in the values; a missing answer is still refused
    kDropRow,  // the row is dropped
  };
  Missing missing = Missing::kRefuse;

  // The trained model's columns. The reader finds them by name, in any order, and ignores other
  // columns. If the model was trained without a header, the reader uses positions: the file
  // contains only the features, or the training file's columns with or without the answers.
  std::optional<TableSchema> schema = std::nullopt;
  // Only used with `schema`. False for a prediction: the file may lack answers, and all rows are
  // used. A missing or unknown answer sets RowSet::has_answers to false.
  bool needs_answers = true;
};

// Reads a table of numbers and categories, with a class or numbers to predict in each row.
//
// Text: UTF-8; UTF-16 with a byte-order mark or with alternating zero bytes; otherwise
// Windows-1252. Plain or gzip. Lines end in LF, CR LF or CR. Blank lines, and spaces around fields,
// are ignored. The separator is ',', ';', tab, '|' or a run of spaces: the first line may set it
// with "sep=;", otherwise it is the separator on which most lines agree. A field may be in double
// quotes, with "" for a quote (RFC 4180), but must not contain a line break.
//
// Header: see csv_header.h. When in doubt, the first line is treated as a row.
//
// Classes: whole numbers are used unchanged if at least half of the numbers from 0 to the largest
// occur. Other whole numbers, for example 1001 and 60000, or -1 and 1, become names in numeric
// order. If any value is not a number, all values are names in byte order. A model's schema
// replaces these rules.
//
// Messages contain the file, and the line and column if one field is the cause. NOT_FOUND: the file
// does not exist. DATA_LOSS: a line's field count differs from the first line's; a quoted field is
// not closed, or is followed by text. INVALID_ARGUMENT: the file is not text; the table does not
// contain rows or features; a named column is missing or a duplicate; a value is missing, or is not
// a number, category or class; there are more than 65536 classes, or more than 1000 categories in a
// column.
absl::StatusOr<RowSet> ReadCsv(const std::string& path, const CsvColumns& columns);

}  // namespace torchps
