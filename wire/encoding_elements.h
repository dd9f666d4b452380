#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

// What an encoding makes of single numbers, and back: for loops that are compiled for each
// instruction set (common/cpu/instruction_set.h), so everything is inlined, and nothing branches.
// docs/wire.md describes the formats.

namespace torchps {

inline constexpr uint32_t kMagnitudeBits = 0x7fffffffu;
inline constexpr uint32_t kInfinityBits = 0x7f800000u;

[[gnu::always_inline]] inline uint32_t BitsOf(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

[[gnu::always_inline]] inline float FloatOf(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// The two 16-bit formats: Of() gives the 16 bits that are sent, In() what they stand for. A float32
// comes and goes as its bits, so that a NaN goes through no arithmetic.
struct Bfloat16 {
  [[gnu::always_inline]] static uint32_t Of(uint32_t bits) {
    const uint32_t magnitude = bits & kMagnitudeBits;
    // To nearest, ties to even; a carry out of the fraction raises the exponent, as it should.
    const uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    const uint32_t finite = rounded < 0x7f7f ? rounded : 0x7f7f;
    // A NaN stays one although its lower half goes.
    const uint32_t special = magnitude >> 16 | (magnitude > kInfinityBits ? 0x40 : 0);
    const uint32_t half = magnitude < kInfinityBits ? finite : special;
    return half | (bits >> 16 & 0x8000);
  }

  [[gnu::always_inline]] static uint32_t In(uint32_t half) { return half << 16; }
};

// IEEE 754 half precision: 5 bits of exponent with bias 15, 10 of fraction. Below 2^-14 numbers are
// multiples of 2^-24. Both ways go through integers, and through one sum of normal float32: faster
// than a loop of conversion instructions where those are missing, and the same everywhere.
struct Float16 {
  static constexpr uint32_t kBiasDifference = 127 - 15;
  static constexpr uint32_t kSmallestNormal = (kBiasDifference + 1) << 23;  // 2^-14 as a float32

  [[gnu::always_inline]] static uint32_t Of(uint32_t bits) {
    const uint32_t magnitude = bits & kMagnitudeBits;
    const uint32_t rebiased = magnitude - (kBiasDifference << 23);
    const uint32_t normal = (rebiased + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t finite = normal < 0x7bff ? normal : 0x7bff;
    // The neighbours of 0.5 are 2^-24 apart: the addition rounds, and leaves the multiple.
    const uint32_t small = BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t special = magnitude > kInfinityBits ? 0x7e00 : 0x7c00;
    const uint32_t number = magnitude < kSmallestNormal ? small : finite;
    const uint32_t half = magnitude < kInfinityBits ? number : special;
    return half | (bits >> 16 & 0x8000);
  }

  [[gnu::always_inline]] static uint32_t In(uint32_t half) {
    const uint32_t magnitude = half & 0x7fffu;
    const uint32_t shifted = magnitude << 13;
    const uint32_t normal = shifted + (kBiasDifference << 23);
    // 2^-14 (1 + fraction) - 2^-14: exact.
    const uint32_t small = BitsOf(FloatOf(shifted + kSmallestNormal) - FloatOf(kSmallestNormal));
    const uint32_t special = shifted + (2 * kBiasDifference << 23);
    const uint32_t number = magnitude < 0x400 ? small : normal;
    const uint32_t bits = magnitude < 0x7c00 ? number : special;
    return bits | (half & 0x8000) << 16;
  }
};

// A group of INT8: what its numbers are multiples of, and how many times a number is that.
class Int8Scale {
 public:
  // The largest scale. 128 times it is finite, so a group holds no byte that is none.
  static constexpr float kLargest = 0x1.fffffep+120f;

  // `largest`: the bits of the group's largest magnitude. One that is not finite makes the scale a
  // NaN.
  [[gnu::always_inline]] explicit Int8Scale(uint32_t largest) {
    if (largest >= kInfinityBits) return;
    scale_ = FloatOf(largest) / 127.0f;
    scale_ = scale_ < kLargest ? scale_ : kLargest;
    // The inverse of a smaller one could be infinite; such a group is as good as zero.
    if (scale_ < std::numeric_limits<float>::min()) scale_ = 0;
    inverse_ = scale_ > 0 ? 1.0f / scale_ : 0.0f;
  }

  float scale() const { return scale_; }

  // The whole number that is sent for `number` stands in the lowest byte of this sum's bits:
  // neighbours of 1.5 * 2^23 are 1 apart, so adding that rounds, to nearest even.
  [[gnu::always_inline]] float ShiftedMultipleOf(float number) const {
    float quotient = number * inverse_;
    quotient = quotient < 127.0f ? quotient : 127.0f;
    quotient = quotient > -127.0f ? quotient : -127.0f;
    return quotient + kRoundingShift;
  }
  // What is sent for `number`, as its reader will see it.
  [[gnu::always_inline]] float Decoded(float shifted_multiple) const {
    return scale_ * (shifted_multiple - kRoundingShift);
  }

 private:
  static constexpr float kRoundingShift = 12582912.0f;

  float scale_ = std::numeric_limits<float>::quiet_NaN();
  float inverse_ = 0;
};

}  // namespace torchps
