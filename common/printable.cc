#include "common/printable.h"

#include <cstdint>

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

}  // namespace torchps
