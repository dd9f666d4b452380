#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace torchps {

// A line that ps_server and ps_worker print for psctl:
//   torchps_worker progress slot=0 epoch=2 step=340 loss=0.1234 samples_per_s=3210
// is program "torchps_worker", event "progress" and the fields behind it. Copyable.
struct StatusLine {
  std::string program;
  std::string event;
  std::map<std::string, std::string> fields;

  // The field, or "" if the line has none of that name.
  std::string Field(const std::string& name) const;
  // The field as a number; nothing where it is missing, "-" or no number.
  absl::optional<double> Number(const std::string& name) const;
};

// Nothing if `line` is not of this form: a program may print what it likes beside them.
absl::optional<StatusLine> ParseStatusLine(absl::string_view line);

}  // namespace torchps
