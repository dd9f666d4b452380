#include "job/unknown_field.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {
namespace {

// Longer names are no misspellings of ours, and cost quadratic time.
constexpr size_t kLongestMisspelling = 64;

size_t EditDistance(absl::string_view a, absl::string_view b) {
  // row[j]: edits that turn a[0, i) into b[0, j).
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string ClosestName(absl::string_view name, absl::Span<const std::string> known) {
  if (name.empty() || name.size() > kLongestMisspelling) return "";
  const std::string lower = absl::AsciiStrToLower(name);
  std::string closest;
  // A third of the letters wrong is still recognisable; more is another word.
  size_t closest_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(lower, absl::AsciiStrToLower(candidate));
    if (distance < closest_distance) {
      closest = candidate;
      closest_distance = distance;
    }
  }
  return closest;
}

std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  const std::string closest = ClosestName(unknown_name, names);
  return absl::StrCat(closest.empty() ? "" : absl::StrCat("did you mean \"", closest, "\"? "),
                      "it has: ", absl::StrJoin(names, ", "));
}

}  // namespace torchps
