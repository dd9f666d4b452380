#include "torchps/tools/base/status_line.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace torchps {

std::string StatusLine::Field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

std::optional<double> StatusLine::Number(const std::string& name) const {
  double value = 0;
  if (!absl::SimpleAtod(Field(name), &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<StatusLine> ParseStatusLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
  if (words.size() < 2 || !absl::StartsWith(words[0], "torchps_")) return std::nullopt;
  StatusLine parsed;
  parsed.program = std::string(words[0]);
  parsed.event = std::string(words[1]);
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == absl::string_view::npos || equals == 0) return std::nullopt;
    parsed.fields[std::string(words[i].substr(0, equals))] =
        std::string(words[i].substr(equals + 1));
  }
  return parsed;
}

}  // namespace torchps
