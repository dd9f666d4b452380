#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/table/csv.h"

namespace torchps {

inline constexpr int32_t kMaxClasses = 65536;  // limits the size of a model's last layer

// The classes of a column's distinct texts.
struct CsvClasses {
  std::vector<std::string> names;  // empty: classes are numbers
  std::vector<int32_t> of_text;    // -1: the text is not a class
  std::string expected;            // expected value, for the error message
};

// Assigns classes to `texts`, the distinct texts in `rows` rows. Whole numbers are used unchanged
// if at least half of the numbers from 0 to the largest occur. Other whole numbers become names, in
// numeric order. If any text is not a number, all texts are names, in byte order.
CsvClasses NumberClasses(const std::vector<std::string>& texts, int64_t rows);

// Finds the classes of `texts` among the model's classes.
CsvClasses FindClasses(const std::vector<std::string>& texts, const TableSchema& schema);

}  // namespace torchps
