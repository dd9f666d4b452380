#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

int64_t Heaviest(const std::vector<int64_t>& weights, const std::vector<size_t>& firsts) {
  int64_t heaviest = 0;
  for (size_t part = 0; part < firsts.size(); ++part) {
    const size_t end = part + 1 < firsts.size() ? firsts[part + 1] : weights.size();
    heaviest = std::max(heaviest, std::accumulate(weights.begin() + firsts[part],
                                                  weights.begin() + end, int64_t{0}));
  }
  return heaviest;
}

// Tries each cut into `parts` parts. Returns the smallest weight that the heaviest part can have.
int64_t LeastHeaviest(const std::vector<int64_t>& weights, size_t parts) {
  int64_t least = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  for (uint32_t cuts = 0; cuts < (1u << (weights.size() - 1)); ++cuts) {
    std::vector<size_t> firsts = {0};
    for (size_t i = 1; i < weights.size(); ++i) {
      if ((cuts >> (i - 1) & 1) != 0) firsts.push_back(i);
    }
    if (firsts.size() == parts) least = std::min(least, Heaviest(weights, firsts));
  }
  return least;
}

TEST(EvenCutTest, EqualLayersAreDividedEqually) {
  EXPECT_THAT(EvenCut({1, 1, 1, 1}, 2), ElementsAre(0, 2));
  EXPECT_THAT(EvenCut({1, 1, 1, 1, 1}, 2), ElementsAre(0, 3));
  EXPECT_THAT(EvenCut({1, 1, 1}, 1), ElementsAre(0));
  EXPECT_THAT(EvenCut({1, 1, 1}, 3), ElementsAre(0, 1, 2));
}

TEST(EvenCutTest, AHeavyLayerIsAlone) {
  EXPECT_THAT(EvenCut({100, 1, 1, 1}, 2), ElementsAre(0, 1));
  EXPECT_THAT(EvenCut({1, 1, 1, 100}, 2), ElementsAre(0, 3));
}

TEST(EvenCutTest, NoOtherCutHasALighterHeaviestPart) {
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> weights(1 + random() % 9);
    for (int64_t& weight : weights) weight = random() % 20;
    for (size_t parts = 1; parts <= weights.size(); ++parts) {
      const std::vector<size_t> firsts = EvenCut(weights, parts);
      ASSERT_EQ(firsts.size(), parts);
      ASSERT_TRUE(std::adjacent_find(firsts.begin(), firsts.end(), std::greater_equal<>()) ==
                  firsts.end())
          << "a part without a layer; round " << round << ", seed " << kSeed;
      EXPECT_EQ(Heaviest(weights, firsts), LeastHeaviest(weights, parts))
          << "round " << round << ", seed " << kSeed;
    }
  }
}

}  // namespace
}  // namespace torchps
