#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace torchps {

// The 64-bit FNV-1a hash (Fowler, Noll, Vo), which is the same on every machine and in every
// process: for fingerprints that travel. Not for hash tables, and no protection against intent.
class Fnv1a {
 public:
  // Eight bytes, little-endian.
  void AddInteger(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(value >> shift));
  }

  // The length first, so that neighbouring strings cannot run into each other.
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
