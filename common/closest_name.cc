#include "common/closest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"

namespace torchps {
namespace {

// Longer names are not searched: they are unlikely misspellings, and the search is quadratic.
constexpr size_t kLongestMisspelling = 64;

// In names of up to this length the first letter must match, because many short words differ in a
// single letter and the first letter is rarely mistyped.
constexpr size_t kShortWord = 4;

size_t EditDistance(absl::string_view a, absl::string_view b) {
  // `row[j]` counts the edits that turn a[0, i) into b[0, j).
  std::vector<size_t> last_but_one;
  std::vector<size_t> last(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t wrong = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j - 1] + wrong, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], last_but_one[j - 2] + 1);
      }
    }
    last_but_one = std::move(last);
    last = std::move(row);
  }
  return last[b.size()];
}

}  // namespace

std::string ClosestName(absl::string_view name, const std::vector<std::string>& known) {
  if (name.empty() || name.size() > kLongestMisspelling) return "";
  const std::string lower = absl::AsciiStrToLower(name);
  std::string closest;
  size_t closest_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::string other = absl::AsciiStrToLower(candidate);
    if (other.empty() || (lower.size() <= kShortWord && other[0] != lower[0])) continue;
    const size_t distance = EditDistance(lower, other);
    if (distance < closest_distance) {
      closest = candidate;
      closest_distance = distance;
    }
  }
  return closest;
}

}  // namespace torchps
