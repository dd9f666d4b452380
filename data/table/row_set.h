#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchps {

// Rows of numbers with a class each, as read: what the CSV reader returns, free of torch.
struct RowSet {
  std::vector<std::string> columns;  // of the features; empty strings where there is no header
  std::vector<double> values;        // row after row, columns.size() in each
  std::vector<int32_t> labels;

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

}  // namespace torchps
