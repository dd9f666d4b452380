#pragma once

#include <cstdint>
#include <cstring>

#include "torchps/common/host_device.h"

// Encoding and decoding of single numbers, for loops compiled for each instruction set
// (torchps/common/cpu/cpu_flags.h) and for GPU kernels. All functions are inlined and branch-free.
// docs/protocol.md describes the formats.

namespace torchps {

// Number of INT8 elements that share a scale.
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

// Returns the magnitude bits. Compared as integers, they order like the magnitudes, and NaNs exceed
// all other values.
TPS_HOST_DEVICE inline uint32_t GetMagnitude(float number) {
  return GetBits(number) & kMagnitudeBits;
}

// bfloat16, the upper half of a float32. The function Of() returns the 16 bits to send, and In()
// the value that they represent. Both use the bits of the float32, so that NaNs do not pass through
// arithmetic.
struct Bfloat16 {
  TPS_HOST_DEVICE static uint32_t Of(uint32_t bits) {
    const uint32_t magnitude = bits & kMagnitudeBits;
    // Rounds to nearest, ties to even. A carry out of the fraction correctly increments the
    // exponent.
    const uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    const uint32_t finite = rounded < 0x7f7f ? rounded : 0x7f7f;
    // Setting a fraction bit keeps a NaN a NaN even if only the lower half distinguished it.
    const uint32_t special = magnitude >> 16 | (magnitude > kInfinityBits ? 0x40 : 0);
    const uint32_t half = magnitude < kInfinityBits ? finite : special;
    return half | (bits >> 16 & 0x8000);
  }

  TPS_HOST_DEVICE static uint32_t In(uint32_t half) { return half << 16; }

  // Encodes a finite `number`, returns the bits to send, and replaces `number` by the encoding
  // error.
  TPS_HOST_DEVICE static uint32_t Take(float& number) {
    const uint32_t half = Of(GetBits(number));
    number -= GetFloat(In(half));
    return half;
  }
};

// The scale of an INT8 group. Each number is sent as a multiple of the scale.
class Int8Scale {
 public:
  // Largest valid scale. 128 times this scale is finite, so all bytes decode to finite numbers.
  static constexpr float kLargest = 0x1.fffffep+120f;

  // `largest` holds the bits of the group's largest magnitude. If it is non-finite, the scale
  // becomes NaN.
  TPS_HOST_DEVICE explicit Int8Scale(uint32_t largest) : scale_(GetFloat(kNanBits)), inverse_(0) {
    if (largest >= kInfinityBits) return;
    scale_ = GetFloat(largest) / 127.0f;
    scale_ = scale_ < kLargest ? scale_ : kLargest;
    // A scale below the smallest normal number could have an infinite inverse. All numbers of such
    // a group are practically zero.
    if (scale_ < kSmallestNormal) scale_ = 0;
    inverse_ = scale_ > 0 ? 1.0f / scale_ : 0.0f;
  }

  TPS_HOST_DEVICE float scale() const { return scale_; }

  // Returns a sum with the encoded integer in the lowest byte of the sum's bits. Floats near 1.5 *
  // 2^23 are 1 apart, so this addition rounds to the nearest integer, ties to even.
  TPS_HOST_DEVICE float GetShiftedMultiple(float number) const {
    float quotient = number * inverse_;
    quotient = quotient < 127.0f ? quotient : 127.0f;
    quotient = quotient > -127.0f ? quotient : -127.0f;
    return quotient + kRoundingShift;
  }

  // Encodes `number`, returns the encoded integer in the lowest byte, and replaces `number` by the
  // encoding error.
  TPS_HOST_DEVICE uint32_t Take(float& number) const {
    const float shifted = GetShiftedMultiple(number);
    number -= scale_ * (shifted - kRoundingShift);
    return GetBits(shifted);
  }

  // Decodes a byte of a group with this scale.
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
