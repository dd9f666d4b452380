#include "tools/base/status_line.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace torchps {

std::string StatusLine::Field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

absl::optional<double> StatusLine::Number(const std::string& name) const {
  double value = 0;
  if (!absl::SimpleAtod(Field(name), &value) || !std::isfinite(value)) return absl::nullopt;
  return value;
}

absl::optional<StatusLine> ParseStatusLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
  if (words.size() < 2 || !absl::StartsWith(words[0], "torchps_")) return absl::nullopt;
  StatusLine parsed;
  parsed.program = std::string(words[0]);
  parsed.event = std::string(words[1]);
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == absl::string_view::npos || equals == 0) return absl::nullopt;
    parsed.fields[std::string(words[i].substr(0, equals))] =
        std::string(words[i].substr(equals + 1));
  }
  return parsed;
}

}  // namespace torchps
