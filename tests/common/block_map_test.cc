#include "torchps/common/block_map.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelLayout Layout(int64_t trained, int64_t averaged) {
  std::vector<Segment> segments(averaged > 0 ? 2 : 1);
  segments[0].name = "weight";
  segments[0].shape = {trained};
  if (averaged > 0) {
    segments[1].name = "mean";
    segments[1].shape = {averaged};
    segments[1].averaged = true;
  }
  const absl::StatusOr<ModelLayout> layout = ModelLayout::Create(segments);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? *layout : ModelLayout();
}

BlockMap Map(const ModelLayout& layout, int64_t block_bytes, int servers) {
  const absl::StatusOr<BlockMap> map = BlockMap::Create(layout, block_bytes, servers);
  EXPECT_TRUE(map.ok()) << map.status();
  return map.ok() ? *map : BlockMap();
}

void ExpectRefused(int64_t block_bytes, int servers, const std::string& reason) {
  const absl::Status status =
      BlockMap::Create(Layout(int64_t{1} << 30, 0), block_bytes, servers).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
}

TEST(BlockMapTest, SeparatesTrainedAndAveragedElements) {
  // Blocks of 4 elements: 4 + 4 + 2 trained and 4 + 1 averaged elements.
  const BlockMap map = Map(Layout(10, 5), 16, 2);
  struct Expected {
    int64_t offset;
    int64_t length;
    bool averaged;
    int server;
  };
  const std::vector<Expected> expected = {
      {0, 4, false, 0}, {4, 4, false, 1}, {8, 2, false, 0}, {10, 4, true, 1}, {14, 1, true, 0}};
  ASSERT_EQ(map.blocks().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const BlockRange& block = map.blocks()[i];
    EXPECT_EQ(block.id, i);
    EXPECT_EQ(block.offset, expected[i].offset) << i;
    EXPECT_EQ(block.length, expected[i].length) << i;
    EXPECT_EQ(block.averaged, expected[i].averaged) << i;
    EXPECT_EQ(block.server, expected[i].server) << i;
  }
  EXPECT_EQ(map.servers(), 2);
  EXPECT_THAT(map.owned_by(0), ElementsAre(0, 2, 4));
  EXPECT_THAT(map.owned_by(1), ElementsAre(1, 3));
}

TEST(BlockMapTest, AssignsEachElementToOneServer) {
  for (const int64_t trained : {7, 63, 64, 65, 1000}) {
    for (const int64_t averaged : {0, 1, 64, 130}) {
      for (const int servers : {1, 2, 3, 7}) {
        SCOPED_TRACE(testing::Message() << trained << " trained, " << averaged << " averaged, "
                                        << servers << " servers");
        const BlockMap map = Map(Layout(trained, averaged), 256, servers);
        int64_t next = 0;
        for (const BlockRange& block : map.blocks()) {
          EXPECT_EQ(block.offset, next);
          EXPECT_GE(block.length, 1);
          EXPECT_LE(block.length, 64);
          EXPECT_EQ(block.averaged, block.offset >= trained);
          next += block.length;
        }
        EXPECT_EQ(next, trained + averaged);
        size_t owned = 0;
        for (int server = 0; server < servers; ++server) {
          for (const BlockId id : map.owned_by(server)) {
            EXPECT_EQ(map.blocks()[id].server, server);
            ++owned;
          }
        }
        EXPECT_EQ(owned, map.blocks().size());
      }
    }
  }
}

TEST(BlockMapTest, SmallModelsAreCutSoThatEveryServerGetsABlock) {
  const BlockMap map = Map(Layout(10, 1), 1 << 20, 3);
  // Blocks of 3, 3, 3 and 1 trained elements, and one averaged block.
  ASSERT_EQ(map.blocks().size(), 5u);
  EXPECT_EQ(map.blocks()[0].length, 3);
  EXPECT_EQ(map.blocks()[3].length, 1);
  EXPECT_THAT(map.owned_by(0), ElementsAre(0, 3));
  EXPECT_THAT(map.owned_by(1), ElementsAre(1, 4));
  EXPECT_THAT(map.owned_by(2), ElementsAre(2));
}

TEST(BlockMapTest, RefusesMoreServersThanTrainedElements) {
  EXPECT_EQ(Map(Layout(3, 0), 1024, 3).blocks().size(), 3u);
  EXPECT_EQ(BlockMap::Create(Layout(3, 7), 1024, 4).status(),
            absl::InvalidArgumentError("a model of 3 elements cannot be spread over 4 servers"));
}

TEST(BlockMapTest, RefusesInvalidBlockSizesAndServerCounts) {
  ExpectRefused(0, 1, "block_bytes is 0; expected a positive multiple of 4");
  ExpectRefused(-4, 1, "block_bytes is -4");
  ExpectRefused(6, 1, "block_bytes is 6");
  ExpectRefused(1024, 0, "at least one server, got 0");
  ExpectRefused(1024, -1, "at least one server, got -1");
}

TEST(BlockMapTest, RefusesTooManyBlocks) {
  ExpectRefused(64, 1, "block_bytes 64 cuts 1073741824 elements into more than 2^24 blocks");
}

}  // namespace
}  // namespace torchps
