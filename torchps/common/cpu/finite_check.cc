#include "torchps/common/cpu/finite_check.h"

#include <algorithm>
#include <cstring>

namespace torchps {
namespace {

template <typename Bits>
[[gnu::always_inline]] inline bool HasExponent(const uint8_t* numbers, int64_t i, Bits exponent) {
  Bits bits;
  std::memcpy(&bits, numbers + i * sizeof(Bits), sizeof(Bits));
  return (bits & exponent) == exponent;
}

// Returns true if a number among the `count` numbers sets all bits of `exponent`. The loop is
// branch-free so that it vectorises.
struct AnyNonFinite {
  template <typename Bits>
  [[gnu::always_inline]] static bool Run(const uint8_t* numbers, int64_t count, Bits exponent) {
    Bits found = 0;
    for (int64_t i = 0; i < count; ++i) {
      found |= static_cast<Bits>(HasExponent(numbers, i, exponent) ? 1 : 0);
    }
    return found != 0;
  }
};

template <typename Bits>
int64_t FirstWithExponent(const uint8_t* numbers, int64_t count, Bits exponent,
                          InstructionSet set) {
  // Searches element by element only in a chunk that contains a number with this exponent.
  constexpr int64_t kChunk = 4096;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t chunk = std::min(kChunk, count - begin);
    const uint8_t* const first = numbers + begin * sizeof(Bits);
    if (!RunVectorised<AnyNonFinite>(set, first, chunk, exponent)) continue;
    int64_t i = 0;
    while (!HasExponent(first, i, exponent)) ++i;
    return begin + i;
  }
  return -1;
}

}  // namespace

int64_t FirstNonFinite(absl::Span<const float> elements, InstructionSet set) {
  return FirstNonFinite(reinterpret_cast<const uint8_t*>(elements.data()),
                        static_cast<int64_t>(elements.size()), set);
}

int64_t FirstNonFinite(const uint8_t* numbers, int64_t count, InstructionSet set) {
  // Infinities and NaNs, and no other numbers, set all exponent bits (IEEE 754).
  constexpr uint32_t kExponent = 0x7f800000u;
  return FirstWithExponent(numbers, count, kExponent, set);
}

int64_t FirstNonFiniteBfloat16(const uint8_t* numbers, int64_t count, InstructionSet set) {
  constexpr uint16_t kExponent = 0x7f80;
  return FirstWithExponent(numbers, count, kExponent, set);
}

}  // namespace torchps
