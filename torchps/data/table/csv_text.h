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

// Reads the text of a CSV file as lines of fields. Errors do not contain the file name.
class CsvText {
 public:
  using Fields = std::vector<std::string>;
  // Receives a line number, from 1, and the fields.
  using Visit = absl::FunctionRef<absl::Status(int64_t line, const Fields& fields)>;

  // Detects encoding, line ends and separator. INVALID_ARGUMENT: `bytes` are not text, or blank.
  static absl::StatusOr<CsvText> Open(std::string bytes);

  char separator() const { return separator_; }

  // Calls `visit` for each of the first `max_lines` non-blank lines, until it fails. Returns the
  // error. DATA_LOSS: a quoted field is not closed, or is followed by text.
  absl::Status ForEachLine(Visit visit,
                           int64_t max_lines = std::numeric_limits<int64_t>::max()) const;

 private:
  explicit CsvText(std::string text) : text_(std::move(text)) {}

  void FindSeparator();
  absl::string_view Table() const { return absl::string_view(text_).substr(begin_); }

  std::string text_;
  size_t begin_ = 0;          // where the table begins, after a line "sep=;"
  int64_t lines_before_ = 0;  // lines before `begin_`
  char separator_ = ',';
};

}  // namespace torchps
