#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace torchps {

// Floats that look like a gradient: small, of both signs, none of them zero or denormal, the same
// every time. Written, so that every page is there.
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
