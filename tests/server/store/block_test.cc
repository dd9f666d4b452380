#include "torchps/server/store/block.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

constexpr int64_t kLength = 5;

BlockRange Range() {
  BlockRange range;
  range.length = kLength;
  return range;
}

std::vector<float> ReadSlice(const grpc::Slice& slice) {
  const auto* const floats = reinterpret_cast<const float*>(slice.begin());
  return {floats, floats + slice.size() / sizeof(float)};
}

class BlockTest : public ::testing::Test {
 protected:
  void Change(float value) {
    MutexLock lock(&block_.mutex);
    const BlockChange change(&block_);
    std::fill(block_.values.begin(), block_.values.end(), value);
    ++block_.version;
  }
  grpc::Slice Lend() {
    MutexLock lock(&block_.mutex);
    return ValueBuffer::Lend(block_.buffer);
  }
  std::vector<float> Values() {
    MutexLock lock(&block_.mutex);
    return {block_.values.begin(), block_.values.end()};
  }
  const float* Place() {
    MutexLock lock(&block_.mutex);
    return block_.values.data();
  }

  Block block_{Range()};
};

TEST_F(BlockTest, LentValuesDoNotChange) {
  Change(1);
  const grpc::Slice first = Lend();
  const grpc::Slice same = Lend();
  Change(2);
  const grpc::Slice second = Lend();
  Change(3);
  Change(4);
  for (const grpc::Slice* lent : {&first, &same}) {
    EXPECT_THAT(ReadSlice(*lent), SizeIs(kLength));
    EXPECT_THAT(ReadSlice(*lent), Each(1.0f));
  }
  EXPECT_THAT(ReadSlice(second), Each(2.0f));
  EXPECT_THAT(Values(), Each(4.0f));
}

TEST_F(BlockTest, AChangeOfOneElementKeepsTheOtherLentValues) {
  Change(1);
  const grpc::Slice lent = Lend();
  {
    MutexLock lock(&block_.mutex);
    const BlockChange change(&block_);
    block_.values[0] = 2;
  }
  EXPECT_EQ(Values(), (std::vector<float>{2, 1, 1, 1, 1}));
}

TEST_F(BlockTest, CopiesOnlyWhileValuesAreLent) {
  Change(1);
  const float* const place = Place();
  { const grpc::Slice let_go = Lend(); }
  Change(2);
  EXPECT_EQ(Place(), place);
  const grpc::Slice kept = Lend();
  { const grpc::Slice let_go = Lend(); }
  Change(3);
  EXPECT_NE(Place(), place);
}

TEST_F(BlockTest, LentValuesSurviveTheMoveToSharedMemory) {
  Change(1);
  const grpc::Slice lent = Lend();
  std::vector<float> shared(kLength);
  SharedBlock head;
  {
    MutexLock lock(&block_.mutex);
    block_.MoveTo(absl::MakeSpan(shared), &head);
    EXPECT_EQ(block_.buffer, nullptr);
  }
  EXPECT_THAT(shared, Each(1.0f));
  const auto version = [&] { return head.TryRead(/*have=*/-1, [] {}); };
  EXPECT_EQ(version(), std::optional<Version>(1));
  Change(2);
  EXPECT_THAT(shared, Each(2.0f));
  EXPECT_EQ(version(), std::optional<Version>(2));
  EXPECT_THAT(ReadSlice(lent), Each(1.0f));
}

TEST_F(BlockTest, SharedReadersDetectAChange) {
  Change(1);
  std::vector<float> shared(kLength);
  SharedBlock head;
  MutexLock lock(&block_.mutex);
  block_.MoveTo(absl::MakeSpan(shared), &head);
  const BlockChange change(&block_);
  EXPECT_EQ(head.TryRead(/*have=*/-1, [] {}), std::nullopt);
}

}  // namespace
}  // namespace torchps
