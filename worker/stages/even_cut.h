#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchps {

// Where to cut a row of layers into `parts` parts that follow each other, so that the heaviest part
// is as light as it can be: the number of each part's first layer. Each part has at least one
// layer. Of several such cuts the one whose first parts have the most layers. A free function
// without state. REQUIRES: 1 <= parts <= weights.size(), and no weight is negative.
std::vector<size_t> EvenCut(const std::vector<int64_t>& weights, size_t parts);

}  // namespace torchps
