#include "torchps/transport/shared_layout.h"

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {
namespace {

ModelLayout MakeLayout(int64_t trained, int64_t averaged) {
  std::vector<Segment> segments(1);
  segments[0].name = "w";
  segments[0].shape = {trained};
  if (averaged > 0) {
    segments.emplace_back();
    segments[1].name = "mean";
    segments[1].shape = {averaged};
    segments[1].averaged = true;
  }
  return *ModelLayout::Create(std::move(segments));
}

// Expects that the byte ranges [begin, end) do not overlap, and lie between the segment's header
// and its end.
void ExpectDisjoint(std::vector<std::pair<size_t, size_t>> pieces, size_t bytes) {
  std::sort(pieces.begin(), pieces.end());
  size_t end = SharedSegment::kHeaderBytes;
  for (const auto& [first, last] : pieces) {
    EXPECT_GE(first, end);
    EXPECT_GT(last, first);
    end = last;
  }
  EXPECT_LE(end, bytes);
}

TEST(SharedLayoutTest, WorkerBlocksDoNotOverlap) {
  for (const auto& [trained, averaged] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {100, 7}, {1024, 1024}, {4097, 1}}) {
    const ModelLayout layout = MakeLayout(trained, averaged);
    const BlockMap map = *BlockMap::Create(layout, 64, 1);
    const PushSegmentLayout segment(layout);
    std::vector<std::pair<size_t, size_t>> pieces;
    for (const BlockRange& block : map.blocks()) {
      const size_t offset = segment.GetOffset(block);
      pieces.emplace_back(offset, offset + block.length * sizeof(float));
      if (!block.averaged) {
        EXPECT_EQ(offset, segment.BufferAt(0) + block.offset * sizeof(float));
      }
    }
    ExpectDisjoint(pieces, segment.bytes());
  }
}

TEST(SharedLayoutTest, ServerBlocksAreDisjointAndAligned) {
  for (const int servers : {1, 3}) {
    const ModelLayout layout = MakeLayout(10007, 130);
    const BlockMap map = *BlockMap::Create(layout, 444, servers);
    for (int server = 0; server < servers; ++server) {
      const ValueSegmentLayout segment(map, server);
      std::vector<std::pair<size_t, size_t>> pieces;
      for (size_t i = 0; i < map.owned_by(server).size(); ++i) {
        const BlockRange& block = map.blocks()[map.owned_by(server)[i]];
        pieces.emplace_back(segment.GetHead(i), segment.GetHead(i) + sizeof(SharedBlock));
        pieces.emplace_back(segment.GetValues(i),
                            segment.GetValues(i) + block.length * sizeof(float));
        EXPECT_EQ(segment.GetHead(i) % 64, 0u);
        EXPECT_EQ(segment.GetValues(i) % 64, 0u);
      }
      ExpectDisjoint(pieces, segment.bytes());
    }
  }
}

}  // namespace
}  // namespace torchps
