#pragma once

#include <cstdint>

#include "common/host_device.h"

// What the kernels and those who launch them agree on. All blocks have kBlockThreads threads.

namespace torchps {

inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpThreads;

// Elements that a block takes where each is on its own. As many share a scale in INT8.
inline constexpr int64_t kChunk = 1024;
inline constexpr int kThreadElements = static_cast<int>(kChunk / kBlockThreads);

// What a scan leaves on the device, for a kernel that scales and for the host.
struct GradientVerdict {
  // Euclidean norm; not a number or infinite where `finite` is 0.
  double norm;
  // What the gradient is to be multiplied by; 1 where nothing is to be done.
  float factor;
  uint32_t finite;
};

// Whether a kernel is to leave a gradient alone, of which an earlier one of the stream has found
// that it is not finite. Null: nobody has looked.
TPS_HOST_DEVICE inline bool IsLeftOut(const GradientVerdict* verdict) {
  return verdict != nullptr && verdict->finite == 0;
}

// The k largest magnitudes are those above `magnitude`, and `at` of those that are equal to it.
// The digits of `magnitude` are found one after the other, from the highest.
struct TopKCut {
  uint32_t magnitude;
  uint32_t at;
};

inline constexpr int kTopKDigits = 3;
inline constexpr int kTopKLargestDigit = 1 << 11;
inline constexpr int64_t kTopKChunk = 4096;

TPS_HOST_DEVICE inline int64_t TopKChunks(int64_t n) { return (n + kTopKChunk - 1) / kTopKChunk; }

}  // namespace torchps
