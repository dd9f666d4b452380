#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/table/csv.h"

namespace torchps {

inline constexpr int32_t kMaxClasses = 65536;  // a model's last layer has a row for each

// The classes of a column's distinct texts.
struct CsvClasses {
  std::vector<std::string> names;  // empty: classes are numbers
  std::vector<int32_t> of_text;    // -1: this text is no class
  std::string expected;            // the words for an error on such a text
};

// Numbers the classes of `texts`, which stand in `rows` rows. Whole numbers of which at least half
// of 0 to the largest occur stay as they are. Other whole numbers become names, in their order. If
// any text is not a number, all are names, in the order of their bytes.
CsvClasses NumberClasses(const std::vector<std::string>& texts, int64_t rows);

// Finds the classes of `texts` among those of a model.
CsvClasses FindClasses(const std::vector<std::string>& texts, const TableSchema& schema);

}  // namespace torchps
