#pragma once

#include <cstdint>

#include "torchps/common/host_device.h"

// Constants and types shared by the kernels and the launching code. A thread block of the GPU runs
// kBlockThreads threads; a gradient block is a block of the model.

namespace torchps {

inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpThreads;

// Number of elements that one thread block processes, and of elements that share a scale in INT8.
inline constexpr int64_t kChunk = 1024;
inline constexpr int kThreadElements = static_cast<int>(kChunk / kBlockThreads);

// Result of a scan on the device, for the scaling kernel and the host.
struct GradientVerdict {
  // Euclidean norm; not finite if `finite` is 0.
  double norm;
  // Factor for the gradient; 1 if the gradient stays unchanged.
  float factor;
  uint32_t finite;
};

// Returns true if an earlier kernel on the stream found that the gradient is not finite. A null
// verdict means that the gradient was not scanned.
TPS_HOST_DEVICE inline bool IsLeftOut(const GradientVerdict* verdict) {
  return verdict != nullptr && verdict->finite == 0;
}

// Selects the k largest magnitudes: elements above `magnitude`, plus the first `at` elements equal
// to it. The kernels find the digits of `magnitude` one by one, from the highest: a magnitude has
// 31 bits, in digits of 11, 10 and 10 bits.
struct TopKCut {
  uint32_t magnitude;
  uint32_t at;
};

inline constexpr int kTopKDigits = 3;
inline constexpr int kTopKLargestDigit = 1 << 11;
inline constexpr int64_t kTopKChunk = 4096;

TPS_HOST_DEVICE inline int64_t TopKChunks(int64_t n) { return (n + kTopKChunk - 1) / kTopKChunk; }

}  // namespace torchps
