#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace torchps {

// Returns floats that resemble a gradient: small, of both signs, not zero or denormal. The result
// is deterministic. Each page is written and thus present in memory.
inline std::vector<float> SomeFloats(int64_t n) {
  std::minstd_rand random(1);
  std::vector<float> floats(n);
  for (float& f : floats) {
    const auto bits = static_cast<int32_t>(random());
    f = ((bits & 1) != 0 ? 1e-3f : -1e-3f) * (1.0f + static_cast<float>(bits >> 8) * 0x1p-23f);
  }
  return floats;
}

}  // namespace torchps
