#pragma once

#include <cstdint>
#include <cstring>

#include "common/host_device.h"

// What an encoding makes of single numbers, and back: for loops that are compiled for each
// instruction set (common/cpu/instruction_set.h) and for kernels of a GPU, so everything is
// inlined, and nothing branches. docs/protocol.md describes the formats.

namespace torchps {

// INT8: elements that share a scale.
inline constexpr int64_t kInt8GroupElements = 1024;

inline constexpr uint32_t kMagnitudeBits = 0x7fffffffu;
inline constexpr uint32_t kInfinityBits = 0x7f800000u;

TPS_HOST_DEVICE inline uint32_t GetBits(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

TPS_HOST_DEVICE inline float GetFloat(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// As integers the magnitudes of floats have the same order, and NaNs are above all.
TPS_HOST_DEVICE inline uint32_t GetMagnitude(float number) {
  return GetBits(number) & kMagnitudeBits;
}

// The upper half of a float32: Of() gives the 16 bits that are sent, In() what they stand for. A
// float32 comes and goes as its bits, so that a NaN goes through no arithmetic.
struct Bfloat16 {
  TPS_HOST_DEVICE static uint32_t Of(uint32_t bits) {
    const uint32_t magnitude = bits & kMagnitudeBits;
    // To nearest, ties to even; a carry out of the fraction raises the exponent, as it should.
    const uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    const uint32_t finite = rounded < 0x7f7f ? rounded : 0x7f7f;
    // A NaN stays one although its lower half goes.
    const uint32_t special = magnitude >> 16 | (magnitude > kInfinityBits ? 0x40 : 0);
    const uint32_t half = magnitude < kInfinityBits ? finite : special;
    return half | (bits >> 16 & 0x8000);
  }

  TPS_HOST_DEVICE static uint32_t In(uint32_t half) { return half << 16; }

  // Gives what is sent for a finite `number`, and leaves in it what that loses.
  TPS_HOST_DEVICE static uint32_t Take(float& number) {
    const uint32_t half = Of(GetBits(number));
    number -= GetFloat(In(half));
    return half;
  }
};

// A group of INT8: what its numbers are multiples of, and how many times a number is that.
class Int8Scale {
 public:
  // The largest scale. 128 times it is finite, so a group holds no byte that is none.
  static constexpr float kLargest = 0x1.fffffep+120f;

  // `largest`: the bits of the group's largest magnitude. One that is not finite makes the scale a
  // NaN.
  TPS_HOST_DEVICE explicit Int8Scale(uint32_t largest) : scale_(GetFloat(kNanBits)), inverse_(0) {
    if (largest >= kInfinityBits) return;
    scale_ = GetFloat(largest) / 127.0f;
    scale_ = scale_ < kLargest ? scale_ : kLargest;
    // The inverse of a smaller one could be infinite; such a group is as good as zero.
    if (scale_ < kSmallestNormal) scale_ = 0;
    inverse_ = scale_ > 0 ? 1.0f / scale_ : 0.0f;
  }

  TPS_HOST_DEVICE float scale() const { return scale_; }

  // The whole number that is sent for `number` stands in the lowest byte of this sum's bits:
  // neighbours of 1.5 * 2^23 are 1 apart, so adding that rounds, to nearest even.
  TPS_HOST_DEVICE float GetShiftedMultiple(float number) const {
    float quotient = number * inverse_;
    quotient = quotient < 127.0f ? quotient : 127.0f;
    quotient = quotient > -127.0f ? quotient : -127.0f;
    return quotient + kRoundingShift;
  }

  // Gives what is sent for `number`, in the lowest byte, and leaves in it what that loses.
  TPS_HOST_DEVICE uint32_t Take(float& number) const {
    const float shifted = GetShiftedMultiple(number);
    number -= scale_ * (shifted - kRoundingShift);
    return GetBits(shifted);
  }

  // What a byte stands for in a group of this scale.
  TPS_HOST_DEVICE static float In(float scale, int8_t multiple) {
    return scale * static_cast<float>(multiple);
  }

 private:
  static constexpr float kRoundingShift = 12582912.0f;
  static constexpr float kSmallestNormal = 0x1p-126f;
  static constexpr uint32_t kNanBits = 0x7fc00000u;

  float scale_;
  float inverse_;
};

}  // namespace torchps
