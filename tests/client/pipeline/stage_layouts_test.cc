#include "torchps/client/stage_layouts.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a layout with one weight of `trained` elements, and one statistic if `averaged` is above
// 0.
ModelLayout GetStage(int stage, int64_t trained, int64_t averaged) {
  std::vector<Segment> segments(averaged > 0 ? 2 : 1);
  segments[0].name = FullName(stage, "weight");
  segments[0].shape = {trained};
  if (averaged > 0) {
    segments[1].name = FullName(stage, "mean");
    segments[1].shape = {averaged};
    segments[1].averaged = true;
  }
  return *ModelLayout::Create(segments);
}

const std::vector<ModelLayout>& Stages() {
  static const auto* const kStages =
      new std::vector<ModelLayout>{GetStage(0, 10, 0), GetStage(1, 3, 5), GetStage(2, 9, 2)};
  return *kStages;
}

TEST(StageLayoutsTest, JoinsStagesInOrder) {
  const absl::StatusOr<ModelLayout> whole = JoinLayouts(Stages());
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::vector<std::string> names;
  std::vector<bool> starts;
  for (const Segment& segment : whole->segments()) {
    names.push_back(segment.name);
    starts.push_back(segment.starts_block);
  }
  EXPECT_THAT(names, ElementsAre("0.weight", "1.weight", "2.weight", "1.mean", "2.mean"));
  EXPECT_THAT(starts, ElementsAre(false, true, true, true, true));
  EXPECT_EQ(whole->trained_size(), 22);
  EXPECT_EQ(whole->averaged_size(), 7);
}

TEST(StageLayoutsTest, RejectsDifferentTensorsWithTheSameName) {
  const absl::Status refused = JoinLayouts({GetStage(0, 4, 0), GetStage(0, 3, 0)}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("0.weight"));
}

TEST(StageLayoutsTest, NoBlockSpansTwoStages) {
  const ModelLayout whole = *JoinLayouts(Stages());
  const BlockMap map = *BlockMap::Create(whole, /*block_bytes=*/16, /*servers=*/2);
  std::vector<int64_t> lengths;
  for (const BlockRange& block : map.blocks()) lengths.push_back(block.length);
  EXPECT_THAT(lengths, ElementsAre(4, 4, 2, 3, 4, 4, 1, 4, 1, 2));
}

TEST(StageLayoutsTest, StagesPartitionTheBlocks) {
  const ModelLayout whole = *JoinLayouts(Stages());
  const BlockMap map = *BlockMap::Create(whole, /*block_bytes=*/16, /*servers=*/3);
  std::set<BlockId> held;
  for (int stage = 0; stage < 3; ++stage) {
    const absl::StatusOr<BlockMap> part = BlocksOfStage(map, Stages(), stage);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_FALSE(part->is_whole());
    int64_t offset = 0;
    for (const BlockRange& block : part->blocks()) {
      const BlockRange& of_whole = map.blocks()[part->WholeId(block.id)];
      EXPECT_EQ(block.offset, offset) << "the stage's own vector has no gaps";
      offset += block.length;
      EXPECT_EQ(block.length, of_whole.length);
      EXPECT_EQ(block.server, of_whole.server);
      EXPECT_EQ(block.averaged, of_whole.averaged);
      EXPECT_EQ(part->Find(of_whole.id), block.id);
      EXPECT_TRUE(held.insert(of_whole.id).second) << "two stages hold block " << of_whole.id;
    }
    EXPECT_EQ(offset, Stages()[stage].size());
    for (int server = 0; server < 3; ++server) {
      EXPECT_EQ(part->all_owned_by(server), map.owned_by(server));
      for (const BlockId own : part->owned_by(server)) {
        EXPECT_EQ(part->blocks()[own].server, server);
      }
    }
  }
  EXPECT_EQ(held.size(), map.blocks().size());
}

TEST(StageLayoutsTest, DoesNotFindABlockOfAnotherStage) {
  const BlockMap map = *BlockMap::Create(*JoinLayouts(Stages()), 16, 1);
  const BlockMap first = *BlocksOfStage(map, Stages(), 0);
  EXPECT_EQ(first.Find(2), 2u);
  EXPECT_EQ(first.Find(3), std::nullopt);
  EXPECT_EQ(first.Find(1000), std::nullopt);
}

TEST(StageLayoutsTest, RejectsAMapWithoutStages) {
  std::vector<Segment> undivided = (*JoinLayouts(Stages())).segments();
  for (Segment& segment : undivided) segment.starts_block = false;
  const BlockMap map = *BlockMap::Create(*ModelLayout::Create(undivided), 16, 1);
  const absl::Status refused = BlocksOfStage(map, Stages(), 0).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ends within a block"));
}

TEST(StageLayoutsTest, ModelsWithAndWithoutStagesDiffer) {
  const ModelLayout whole = *JoinLayouts(Stages());
  std::vector<Segment> undivided = whole.segments();
  for (Segment& segment : undivided) segment.starts_block = false;
  const ModelLayout other = *ModelLayout::Create(undivided);
  EXPECT_NE(whole.fingerprint(), other.fingerprint());
  const absl::Status differs = whole.CheckSame(other, "the running job", "this worker");
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(differs.message()), HasSubstr("begins a stage"));
}

}  // namespace
}  // namespace torchps
