#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The text of a CSV file, as lines of fields. Its errors do not name the file.
class CsvText {
 public:
  using Fields = std::vector<std::string>;
  // Gets the number of a line, from 1, and its fields.
  using Visit = absl::FunctionRef<absl::Status(int64_t line, const Fields& fields)>;

  // Finds out encoding, line ends and separator. INVALID_ARGUMENT: `bytes` are not text, or blank.
  static absl::StatusOr<CsvText> Open(std::string bytes);

  char separator() const { return separator_; }

  // Calls `visit` for each of the first `max_lines` lines that are not blank, until it fails.
  // Returns its error. DATA_LOSS: a quoted field has no end, or text behind it.
  absl::Status ForEachLine(Visit visit,
                           int64_t max_lines = std::numeric_limits<int64_t>::max()) const;

 private:
  explicit CsvText(std::string text) : text_(std::move(text)) {}

  void FindSeparator();
  absl::string_view Table() const { return absl::string_view(text_).substr(begin_); }

  std::string text_;
  size_t begin_ = 0;          // of the table, behind a line "sep=;"
  int64_t lines_before_ = 0;  // lines above `begin_`
  char separator_ = ',';
};

}  // namespace torchps
