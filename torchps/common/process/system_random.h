#pragma once

#include <cstdint>
#include <random>

namespace torchps {

// Returns an unpredictable number from the operating system. Thread-safe. Classes that need random
// numbers use this as the default of an option, so that tests and the simulator can inject fixed
// numbers.
inline uint64_t SystemRandom() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace torchps
