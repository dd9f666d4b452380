#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchps {

// One column of a table that a model takes as input.
struct FeatureColumn {
  std::string name;  // empty if the file has no header
  // The values of a category, sorted by bytes; empty for a column of numbers.
  std::vector<std::string> categories = {};
};

// The rows of a table. Each row has a class, numbers to predict, or neither. Free of torch.
struct RowSet {
  std::vector<FeatureColumn> columns;
  // Row after row, columns.size() in each: a number, or an index in FeatureColumn::categories.
  // NaN: a missing value, or an unknown category.
  std::vector<double> values;

  // The class of each row, from 0. Empty if there are targets, or no answers.
  std::vector<int32_t> labels;
  // The name of each class. Empty: classes are numbers.
  std::vector<std::string> class_names;
  std::string label_column;  // its name; empty if the file has no header

  // The names of the numbers to predict, empty strings if the file has no header. No names if there
  // are classes.
  std::vector<std::string> target_columns;
  std::vector<double> targets;  // row after row, target_columns.size() in each

  int64_t rows = 0;
  bool has_answers = true;  // each row has a class or targets
  bool had_header = false;
  int64_t dropped = 0;                // rows left out for a missing value
  std::vector<std::string> left_out;  // names, else numbers, of the columns left out
};

}  // namespace torchps
