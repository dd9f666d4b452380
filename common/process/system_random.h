#pragma once

#include <cstdint>
#include <random>

namespace torchps {

// A number that nobody can guess, from the operating system. Thread-safe. What draws one takes this
// as a default of its options, so that tests and the simulator may hand in numbers of their own.
inline uint64_t SystemRandom() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace torchps
