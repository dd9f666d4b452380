#pragma once

#include <cstdint>
#include <vector>

namespace torchps {

// Returns the order in which epoch `epoch` (from 1) visits `samples` training samples: element i is
// the sample at position i. Uses a Fisher-Yates shuffle (Durstenfeld 1964) driven by SplitMix64
// from (seed, epoch). Every worker computes the same order from the job alone, as
// DistributedSampler's set_epoch does, so a sample lease is just a range of positions. O(samples)
// time and memory.
std::vector<int64_t> EpochOrder(uint64_t seed, int epoch, int64_t samples);

}  // namespace torchps
