#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/server/job/frame_admission.h"
#include "torchps/transport/push_segments.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SlotId kSlot = 3;

ModelLayout GetLayout(int64_t elements) {
  Segment segment;
  segment.name = "weight";
  segment.shape = {elements};
  return *ModelLayout::Create({segment});
}

// Creates a worker's shared memory with each element equal to the element's index, and frames that
// refer to this memory.
class SharedFramesTest : public ::testing::Test {
 protected:
  void Share(int64_t elements, int64_t block_elements, int servers) {
    const ModelLayout layout = GetLayout(elements);
    map_ = *BlockMap::Create(layout, block_elements * sizeof(float), servers);
    worker_ = *PushSegment::Create(layout);
    for (int64_t i = 0; i < elements; ++i) worker_->buffer(0)[i] = static_cast<float>(i);
    segments_ = std::make_unique<PushSegments>(layout);
    ASSERT_EQ(segments_->Open(kSlot, 1, worker_->offer()), absl::OkStatus());
    frames_ = std::make_unique<SharedFrames>(segments_.get(), &map_, /*server_index=*/0);
  }

  static PushHeader Frame(BlockId first, uint32_t blocks) {
    PushHeader header;
    header.slot = kSlot;
    header.block = first;
    header.shared_blocks = blocks;
    return header;
  }

  absl::Status Push(const PushHeader& header, bool copies = false) {
    const std::shared_ptr<const SharedSegment> segment = segments_->Find(kSlot, 1);
    return frames_->Push(header, *segment, copies,
                         [&](const PushHeader& one, const FramePayload& payload) {
                           const MutexLock lock(&mutex_);
                           if (!refused_.ok()) return refused_;
                           pushed_[one.block] = payload;
                           return absl::OkStatus();
                         });
  }

  std::vector<BlockId> Pushed() const {
    std::vector<BlockId> blocks;
    for (const auto& [block, payload] : pushed_) blocks.push_back(block);
    return blocks;
  }

  // Returns the pushed values as they are now.
  std::vector<float> Values(BlockId block) {
    std::vector<float> values(map_.blocks()[block].length);
    pushed_[block].CopyTo(absl::MakeSpan(values));
    return values;
  }

  BlockMap map_;
  std::unique_ptr<PushSegment> worker_;
  std::unique_ptr<PushSegments> segments_;
  std::unique_ptr<SharedFrames> frames_;
  Mutex mutex_;
  absl::Status refused_;
  std::map<BlockId, FramePayload> pushed_;
};

TEST_F(SharedFramesTest, PushesEachBlockOfARun) {
  Share(/*elements=*/8, /*block_elements=*/2, /*servers=*/1);
  ASSERT_EQ(Push(Frame(1, 2)), absl::OkStatus());
  EXPECT_THAT(Pushed(), ElementsAre(1, 2));
  EXPECT_THAT(Values(1), ElementsAre(2, 3));
  EXPECT_THAT(Values(2), ElementsAre(4, 5));
}

TEST_F(SharedFramesTest, PushesEachBlockOfALongRun) {
  constexpr int64_t kBlocks = 8;
  constexpr int64_t kBlockElements = 1 << 16;
  Share(kBlocks * kBlockElements, kBlockElements, /*servers=*/1);
  ASSERT_EQ(Push(Frame(0, kBlocks)), absl::OkStatus());
  ASSERT_EQ(Pushed().size(), static_cast<size_t>(kBlocks));
  for (BlockId block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(Values(block).front(), static_cast<float>(block * kBlockElements));
  }
}

TEST_F(SharedFramesTest, RejectsARunWithBlocksOfAnotherServer) {
  Share(/*elements=*/8, /*block_elements=*/2, /*servers=*/2);
  const std::vector<BlockId>& owned = map_.owned_by(0);
  ASSERT_EQ(Push(Frame(owned[0], owned.size())), absl::OkStatus());
  EXPECT_EQ(Pushed(), owned);
  pushed_.clear();
  for (const PushHeader& frame :
       {Frame(map_.owned_by(1)[0], 1), Frame(owned[0], owned.size() + 1), Frame(8, 1)}) {
    const absl::Status status = Push(frame);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("which this server does not own"));
  }
  EXPECT_THAT(Pushed(), IsEmpty());
}

TEST_F(SharedFramesTest, RejectsAnUnknownBuffer) {
  Share(/*elements=*/8, /*block_elements=*/2, /*servers=*/1);
  PushHeader frame = Frame(0, 1);
  frame.shared_buffer = 1;
  EXPECT_EQ(Push(frame).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Pushed(), IsEmpty());
}

TEST_F(SharedFramesTest, RejectsAnAbsentTableForSeveralBlocks) {
  Share(/*elements=*/8, /*block_elements=*/2, /*servers=*/1);
  PushHeader frame = Frame(0, 2);
  frame.absent = {{0, 1}};
  EXPECT_EQ(Push(frame).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Pushed(), IsEmpty());
  frame.shared_blocks = 1;
  EXPECT_EQ(Push(frame), absl::OkStatus());
}

TEST_F(SharedFramesTest, LaterWritesChangeAGradientThatWasNotCopied) {
  Share(/*elements=*/8, /*block_elements=*/2, /*servers=*/1);
  ASSERT_EQ(Push(Frame(0, 1), /*copies=*/true), absl::OkStatus());
  ASSERT_EQ(Push(Frame(1, 1), /*copies=*/false), absl::OkStatus());
  for (int i = 0; i < 8; ++i) worker_->buffer(0)[i] = 9;
  EXPECT_THAT(Values(0), ElementsAre(0, 1));
  EXPECT_THAT(Values(1), ElementsAre(9, 9));
}

TEST_F(SharedFramesTest, ReturnsTheErrorOfABlockThatIsRefused) {
  Share(/*elements=*/8, /*block_elements=*/2, /*servers=*/1);
  refused_ = absl::AbortedError("not live");
  EXPECT_EQ(Push(Frame(0, 4)), refused_);
}

}  // namespace
}  // namespace torchps
