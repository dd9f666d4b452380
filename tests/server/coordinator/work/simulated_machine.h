#pragma once

#include <cmath>
#include <cstdint>

#include "torchps/common/hash.h"

namespace torchps {

// Simulates a machine: a step lasts `fixed` + samples * `per_sample` seconds, times log-normal
// noise. On average 1 in 100 steps lasts ten times as long.
struct SimulatedMachine {
  double fixed = 0;
  double per_sample = 0;
  double noise = 0;

  double Seconds(double samples) const { return fixed + samples * per_sample; }

  // Returns the measured seconds of a random step.
  double Measure(double samples, uint64_t& random) const {
    const double radius = std::sqrt(-2 * std::log(1 - UnitDouble(SplitMix64(random))));
    const double normal = radius * std::cos(6.283185307179586 * UnitDouble(SplitMix64(random)));
    const bool outlier = UniformBelow(random, 100) == 0;
    return Seconds(samples) * std::exp(noise * normal) * (outlier ? 10 : 1);
  }
};

// Machine that is `slowness` times as slow as the reference machine. The times are for 32 samples.
inline SimulatedMachine TinyModel(double slowness = 1) {
  return {0.28e-3 * slowness, 0.02e-3 / 32 * slowness, 0.3};
}
inline SimulatedMachine ResNet(double slowness = 1) {
  return {0.02 * slowness, 0.18 / 32 * slowness, 0.03};
}

}  // namespace torchps
