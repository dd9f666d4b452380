#include "torchps/common/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"

namespace torchps {
namespace {

bool Continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Returns true for Unicode's C0 and C1 control characters and DEL.
bool IsControl(absl::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7F;
  return lead == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

}  // namespace

size_t Utf8CharacterBytes(absl::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  size_t size = 0;
  if (lead < 0x80) size = 1;
  if (lead >= 0xC2 && lead < 0xE0) size = 2;
  if (lead >= 0xE0 && lead < 0xF0) size = 3;
  if (lead >= 0xF0 && lead < 0xF5) size = 4;
  if (size == 0 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (!Continues(text[i])) return 0;
  }
  return size;
}

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    const absl::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes == 0 || IsControl(character)) {
      printable += '?';
    } else {
      printable.append(character.data(), character.size());
    }
    text.remove_prefix(character.size());
  }
  return printable;
}

namespace {

// Maximum length in bytes of a name to search for. Longer names are unlikely to be misspellings,
// and the search takes quadratic time.
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
