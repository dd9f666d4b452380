#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace torchps {

// The 64-bit FNV-1a hash (Fowler, Noll, Vo). It is identical on all machines and in all processes,
// so it suits fingerprints that are sent or stored. Not for hash tables, and not
// collision-resistant against an attacker.
class Fnv1a {
 public:
  // Hashes the eight bytes in little-endian order.
  void AddInteger(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(value >> shift));
  }

  // Hashes the length first, so that ("ab", "c") and ("a", "bc") differ.
  void AddString(absl::string_view text) {
    AddInteger(text.size());
    for (const char character : text) AddByte(static_cast<uint8_t>(character));
  }

  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }

  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace torchps
