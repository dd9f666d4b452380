#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  std::vector<std::string> left_out;  // names, else numbers, of the ignored columns
};

}  // namespace torchps
