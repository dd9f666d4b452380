#pragma once

#include <cstdint>

namespace torchps {

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
