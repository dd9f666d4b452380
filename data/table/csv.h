#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/table/row_set.h"

namespace torchps {

// The columns and classes of a trained model.
struct TableSchema {
  std::vector<FeatureColumn> columns;       // in the order of the model's inputs
  std::string label_column;                 // empty: the training file had no header
  std::vector<std::string> class_names;     // empty: classes are numbers, or there are none
  int64_t classes = 0;                      // 0: it predicts numbers
  std::vector<std::string> target_columns;  // the numbers it predicts
};

// The columns of a CSV file. A column is given by its name in the header, or by its number from 0.
struct CsvColumns {
  // The class. Empty: the last column that is not ignored.
  std::string label;
  // The numbers to predict in place of a class, in this order.
  std::vector<std::string> targets = {};
  // Columns to leave out.
  std::vector<std::string> ignored = {};
  // Columns that hold one of a few values.
  std::vector<std::string> categories = {};
  // With `schema`: a category that the model does not know is NaN. Else it is refused.
  bool allow_unknown_category = false;
  // Whether the first line is a header. Unset: the reader compares the lines.
  std::optional<bool> header = std::nullopt;

  // The treatment of a missing value: a field that is empty, NA, N/A, NaN, null, none, ? or -, in
  // upper or lower case. A class is missing only if its field is empty: other words may be names.
  enum class Missing {
    kRefuse,   // INVALID_ARGUMENT
    kKeep,     // NaN among the values; a missing answer is still refused
    kDropRow,  // the row is left out
  };
  Missing missing = Missing::kRefuse;

  // The model that the file is for. The reader finds the model's columns by name, in any order, and
  // leaves out further columns. A model trained without a header takes columns by position: the
  // file has the features only, or the training file's columns with or without the answers.
  std::optional<TableSchema> schema = std::nullopt;
  // With `schema`, false for a prediction: the file may lack answers, and no row is dropped. One
  // missing or unknown answer makes RowSet::has_answers false.
  bool needs_answers = true;
};

// Reads a table of numbers and categories, with a class or numbers to predict in each row.
//
// Text: UTF-8, UTF-16 with a byte-order mark or plainly alternating with zeros, or else
// Windows-1252; plain or gzip.
// Lines end in LF, CR LF or CR. Blank lines and spaces around fields do not count. The separator is
// the ',', ';', tab, '|' or run of spaces on which most lines agree, or the one that a first line
// such as "sep=;" names. A field may be in double quotes, with "" for a quote (RFC 4180), but
// must not hold a line break.
//
// Header: csv_header.h says when the first line is one. In doubt it is a row.
//
// Classes: whole numbers stay as they are if at least half of 0 to the largest occur. Other whole
// numbers, as 1001 and 60000, or -1 and 1, become names in their order. If any is not a number, all
// are names in the order of their bytes. A model's schema gives the classes instead.
//
// Errors name the file, and the line and column where one field is to blame.
// NOT_FOUND: no such file.
// DATA_LOSS: a line has another number of fields than the first; a quoted field has no end, or text
// behind it.
// INVALID_ARGUMENT: the file is not text; the table has no row, or no feature; a named column is
// not there or there twice; a value is missing, or is not a number, category or class; more than
// 65536 classes, or 1000 categories in a column.
absl::StatusOr<RowSet> ReadCsv(const std::string& path, const CsvColumns& columns);

}  // namespace torchps
