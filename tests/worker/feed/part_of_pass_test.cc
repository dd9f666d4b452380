#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/worker/feed/batch_loader.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

std::vector<size_t> Sizes(size_t samples, size_t replicas) {
  std::vector<size_t> sizes;
  for (size_t i = 0; i < replicas; ++i) sizes.push_back(GetPart(samples, i, replicas).size);
  return sizes;
}

TEST(PartOfPassTest, EarlierPartsTakeTheRemainder) {
  EXPECT_THAT(Sizes(12, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(Sizes(14, 3), ElementsAre(5, 5, 4));
  EXPECT_THAT(Sizes(7, 1), ElementsAre(7));
}

TEST(PartOfPassTest, AvoidsSingleSamplesIfNeighboursCanGiveSome) {
  EXPECT_THAT(Sizes(7, 4), ElementsAre(3, 2, 2, 0));
  EXPECT_THAT(Sizes(5, 4), ElementsAre(3, 2, 0, 0));
  EXPECT_THAT(Sizes(3, 2), ElementsAre(3, 0));
}

TEST(PartOfPassTest, LaterReplicasAreIdleIfSamplesAreFew) {
  EXPECT_THAT(Sizes(1, 3), ElementsAre(1, 0, 0));
  EXPECT_THAT(Sizes(2, 3), ElementsAre(2, 0, 0));
}

TEST(PartOfPassTest, PartsAreContiguousAndCoverThePass) {
  for (size_t replicas = 1; replicas <= 9; ++replicas) {
    for (size_t samples = 1; samples <= 40; ++samples) {
      size_t end = 0;
      size_t parts = 0;
      for (size_t i = 0; i < replicas; ++i) {
        const PartOfPass part = GetPart(samples, i, replicas);
        EXPECT_EQ(part.begin, end) << samples << " samples, replica " << i << " of " << replicas;
        end += part.size;
        if (part.size > 0) parts = i + 1;
        EXPECT_TRUE(part.size != 1 || samples == 1) << samples << " samples, " << replicas;
      }
      EXPECT_EQ(end, samples) << replicas << " replicas";
      EXPECT_EQ(PartsOfPass(samples, replicas), parts);
    }
  }
}

}  // namespace
}  // namespace torchps
