#include "worker/stages/even_cut.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"

namespace torchps {
namespace {

// Fills parts from the first layer on, each up to the weight `most`, and leaves one layer for each
// later part. Returns more than `parts` parts if `most` is too small.
std::vector<size_t> Fill(const std::vector<int64_t>& weights, size_t parts, int64_t most) {
  std::vector<size_t> firsts = {0};
  int64_t weight = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool are_needed = weights.size() - i + firsts.size() <= parts;
    if (i > firsts.back() && (are_needed || weight + weights[i] > most)) {
      firsts.push_back(i);
      weight = 0;
    }
    weight += weights[i];
  }
  return firsts;
}

}  // namespace

std::vector<size_t> EvenCut(const std::vector<int64_t>& weights, size_t parts) {
  TPS_CHECK(parts >= 1 && parts <= weights.size(), "each part has a layer");
  int64_t least = *std::max_element(weights.begin(), weights.end());
  int64_t most = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  while (least < most) {
    const int64_t middle = least + (most - least) / 2;
    if (Fill(weights, parts, middle).size() <= parts) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return Fill(weights, parts, most);
}

}  // namespace torchps
