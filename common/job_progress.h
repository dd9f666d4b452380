#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace torchps {

// Job progress as carried in pushes: the fraction of the job's samples in units of 2^-32. All
// functions are thread-safe.

inline constexpr double kProgressUnit = 1.0 / (uint64_t{1} << 32);

// Encodes a fraction, clamped to [0, 1 - 2^-32].
inline uint32_t GetProgress(double part) {
  return static_cast<uint32_t>(
      std::clamp(std::floor(part / kProgressUnit), 0.0, static_cast<double>(UINT32_MAX)));
}

inline double GetPart(uint32_t progress) { return progress * kProgressUnit; }

}  // namespace torchps
