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

// SplitMix64 (Steele, Lea, Flood 2014): a small generator that produces the same sequence on all
// machines and with all standard libraries. Advances `state` and returns 64 uniform bits.
inline uint64_t SplitMix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Converts 53 of the bits to a double in [0, 1).
inline double UnitDouble(uint64_t bits) {
  return static_cast<double>(bits >> 11) * (1.0 / 9007199254740992.0);
}

// Returns a uniform integer in [0, bound) without modulo bias (Lemire 2019). REQUIRES: bound > 0.
inline uint64_t UniformBelow(uint64_t& state, uint64_t bound) {
  unsigned __int128 product = static_cast<unsigned __int128>(SplitMix64(state)) * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = -bound % bound;
    while (static_cast<uint64_t>(product) < threshold) {
      product = static_cast<unsigned __int128>(SplitMix64(state)) * bound;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace torchps
