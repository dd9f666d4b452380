#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchps {

// Rows of numbers, each with a class or with numbers to predict, as read: what the CSV reader
// returns, free of torch.
struct RowSet {
  std::vector<std::string> columns;  // of the features; empty strings where there is no header
  std::vector<double> values;        // row after row, columns.size() in each; NaN: missing

  // A class for each row, from 0. Empty where there are targets.
  std::vector<int32_t> labels;
  // Of classes that the file names, ordered by bytes: labels count in it. Empty: they are numbers.
  std::vector<std::string> class_names;

  // Of the numbers to predict; empty where there are classes, and strings where there is no header.
  std::vector<std::string> target_columns;
  std::vector<float> targets;  // row after row, target_columns.size() in each

  int64_t size() const {
    return static_cast<int64_t>(target_columns.empty() ? labels.size()
                                                       : targets.size() / target_columns.size());
  }
};

}  // namespace torchps
