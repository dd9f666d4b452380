#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "torchps/common/hash.h"
#include "torchps/common/model_layout.h"
#include "torchps/transport/shared_values.h"

namespace torchps {
namespace {

BlockMap MakeMap(int64_t blocks, int64_t block_bytes, int servers) {
  Segment segment;
  segment.name = "w";
  segment.shape = {blocks * block_bytes / 4};
  return *BlockMap::Create(*ModelLayout::Create({segment}), block_bytes, servers);
}

using Pairs = std::vector<std::pair<size_t, size_t>>;

// Returns all runs that Next() yields for these ready blocks and versions.
Pairs Take(SharedRuns& runs, const std::vector<bool>& ready, const std::vector<Version>& versions) {
  Pairs taken;
  while (const auto run = runs.Next(ready, versions)) taken.emplace_back(run->begin, run->end);
  return taken;
}

TEST(SharedRunsTest, JoinsBlocksOfOneVersion) {
  const BlockMap map = MakeMap(6, 64, 2);
  SharedRuns runs(&map, 1);
  EXPECT_EQ(Take(runs, std::vector<bool>(6, true), std::vector<Version>(6, 3)), (Pairs{{0, 3}}));
  EXPECT_TRUE(runs.done());
}

TEST(SharedRunsTest, ARunEndsWhereTheVersionChanges) {
  const BlockMap map = MakeMap(4, 64, 1);
  SharedRuns runs(&map, 0);
  EXPECT_EQ(Take(runs, std::vector<bool>(4, true), {5, 5, 6, 5}), (Pairs{{0, 2}, {2, 3}, {3, 4}}));
}

TEST(SharedRunsTest, SplitsALongRun) {
  const BlockMap map = MakeMap(20, 1 << 20, 1);
  SharedRuns runs(&map, 0);
  EXPECT_EQ(Take(runs, std::vector<bool>(20, true), std::vector<Version>(20)),
            (Pairs{{0, 8}, {8, 16}, {16, 20}}));
  const BlockMap large = MakeMap(2, 16 << 20, 1);
  SharedRuns large_runs(&large, 0);
  EXPECT_EQ(Take(large_runs, std::vector<bool>(2, true), std::vector<Version>(2)),
            (Pairs{{0, 1}, {1, 2}}));
}

TEST(SharedRunsTest, ReturnsOnlyReadyBlocksAndEachOnce) {
  const BlockMap map = MakeMap(5, 64, 1);
  const std::vector<Version> versions(5);
  SharedRuns runs(&map, 0);
  EXPECT_EQ(Take(runs, {false, false, false, false, false}, versions), Pairs());
  EXPECT_EQ(Take(runs, {false, false, false, true, true}, versions), (Pairs{{3, 5}}));
  EXPECT_FALSE(runs.done());
  EXPECT_EQ(Take(runs, {true, false, true, true, true}, versions), (Pairs{{0, 1}, {2, 3}}));
  EXPECT_EQ(Take(runs, {true, true, true, true, true}, versions), (Pairs{{1, 2}}));
  EXPECT_TRUE(runs.done());
  EXPECT_EQ(Take(runs, {true, true, true, true, true}, versions), Pairs());
}

TEST(SharedRunsTest, ReturnsEachBlockOnceHoweverTheyBecomeReady) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    uint64_t random = seed;
    const BlockMap map = MakeMap(40, 64, 3);
    for (int server = 0; server < 3; ++server) {
      const std::vector<BlockId>& owned = map.owned_by(server);
      std::vector<Version> versions(40);
      for (Version& version : versions) version = static_cast<Version>(UniformBelow(random, 2));
      std::vector<bool> ready(40);
      std::vector<int> gone(owned.size());
      SharedRuns runs(&map, server);
      while (!runs.done()) {
        ready[UniformBelow(random, 40)] = true;
        for (const auto& [begin, end] : Take(runs, ready, versions)) {
          for (size_t i = begin; i < end; ++i) {
            ++gone[i];
            EXPECT_TRUE(ready[owned[i]]) << "seed " << seed;
            EXPECT_EQ(versions[owned[i]], versions[owned[begin]]) << "seed " << seed;
          }
        }
      }
      EXPECT_EQ(std::count(gone.begin(), gone.end(), 1), static_cast<int64_t>(owned.size()));
    }
  }
}

}  // namespace
}  // namespace torchps
