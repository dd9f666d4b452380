#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchps {

// Cuts a sequence of layers into `parts` consecutive parts such that the heaviest part is as light
// as possible. Returns the index of each part's first layer. Each part contains at least one layer.
// If several cuts are equal, the earlier parts get more layers. A free function without state.
// REQUIRES: 1 <= parts <= weights.size(), and weights are non-negative.
std::vector<size_t> EvenCut(const std::vector<int64_t>& weights, size_t parts);

}  // namespace torchps
