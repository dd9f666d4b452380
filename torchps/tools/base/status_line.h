#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace torchps {

// A line that ps_server and ps_worker print for psctl. For example, in
//   torchps_worker progress slot=0 epoch=2 step=340 loss=0.1234 samples_per_s=3210
// the program is "torchps_worker" and the event is "progress"; the fields follow. Copyable.
struct StatusLine {
  std::string program;
  std::string event;
  std::map<std::string, std::string> fields;

  // Returns the field, or "" if missing.
  std::string Field(const std::string& name) const;
  // Returns the field as a number, or nullopt if it is missing, "-" or not a finite number.
  std::optional<double> Number(const std::string& name) const;
};

// Returns nullopt if `line` does not have this form, because programs may also print other lines.
std::optional<StatusLine> ParseStatusLine(absl::string_view line);

}  // namespace torchps
