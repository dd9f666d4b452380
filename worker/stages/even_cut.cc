#include "worker/stages/even_cut.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace torchps {

std::vector<size_t> EvenCut(const std::vector<int64_t>& weights, size_t parts) {
  const size_t layers = weights.size();
  TPS_CHECK(parts >= 1 && parts <= layers, "each part has a layer");
  std::vector<int64_t> before(layers + 1);
  for (size_t i = 0; i < layers; ++i) before[i + 1] = before[i] + weights[i];
  // The heaviest part of the best cut of the layers from `begin` on into `count` parts, and where
  // the first of them ends.
  struct Best {
    int64_t heaviest = std::numeric_limits<int64_t>::max();
    size_t end = 0;
  };
  std::vector<std::vector<Best>> best(parts + 1, std::vector<Best>(layers));
  for (size_t begin = 0; begin < layers; ++begin) {
    best[1][begin] = {before[layers] - before[begin], layers};
  }
  for (size_t count = 2; count <= parts; ++count) {
    for (size_t begin = 0; begin + count <= layers; ++begin) {
      for (size_t end = begin + 1; end + count - 1 <= layers; ++end) {
        const int64_t heaviest =
            std::max(before[end] - before[begin], best[count - 1][end].heaviest);
        if (heaviest <= best[count][begin].heaviest) best[count][begin] = {heaviest, end};
      }
    }
  }
  std::vector<size_t> firsts = {0};
  for (size_t count = parts; count > 1; --count) {
    firsts.push_back(best[count][firsts.back()].end);
  }
  return firsts;
}

}  // namespace torchps
