#include "torchps/common/sample_order.h"

#include <numeric>
#include <utility>

#include "torchps/common/hash.h"

namespace torchps {

std::vector<int64_t> EpochOrder(uint64_t seed, int epoch, int64_t samples) {
  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), int64_t{0});
  // One draw separates neighbouring seeds. Without it, (seed, epoch + 1) and (seed + 1, epoch)
  // would produce the same order.
  uint64_t state = seed;
  state = SplitMix64(state) ^ static_cast<uint64_t>(epoch);
  for (int64_t i = samples - 1; i > 0; --i) {
    std::swap(order[i], order[UniformBelow(state, i + 1)]);
  }
  return order;
}

}  // namespace torchps
