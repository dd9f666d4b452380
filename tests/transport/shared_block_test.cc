#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "torchps/common/hash.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {
namespace {

// Maps the memory of one block twice, for a writer and a reader, as two processes do.
class SharedBlockTest : public ::testing::Test {
 protected:
  static constexpr size_t kFloats = 16384;

  void SetUp() override {
    const size_t bytes = SharedSegment::kHeaderBytes + sizeof(SharedBlock) + kFloats * 4;
    auto made = SharedSegment::Create("test", bytes);
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = *std::move(made);
    auto opened = SharedSegment::Open(made_->offer(), bytes);
    ASSERT_TRUE(opened.ok()) << opened.status();
    opened_ = *std::move(opened);
    writer_ = reinterpret_cast<SharedBlock*>(made_->data() + SharedSegment::kHeaderBytes);
    reader_ = reinterpret_cast<const SharedBlock*>(opened_->data() + SharedSegment::kHeaderBytes);
    written_ = reinterpret_cast<float*>(writer_ + 1);
    read_ = reinterpret_cast<const float*>(reader_ + 1);
  }

  void Write(Version version) {
    writer_->BeginChange();
    for (size_t i = 0; i < kFloats; ++i) written_[i] = static_cast<float>(version);
    writer_->EndChange(version);
  }

  std::unique_ptr<SharedSegment> made_;
  std::unique_ptr<const SharedSegment> opened_;
  SharedBlock* writer_ = nullptr;
  const SharedBlock* reader_ = nullptr;
  float* written_ = nullptr;
  const float* read_ = nullptr;
};

TEST_F(SharedBlockTest, ZeroedMemoryIsVersionZero) {
  bool copied = false;
  EXPECT_EQ(reader_->TryRead(-1, [&] { copied = true; }), Version{0});
  EXPECT_TRUE(copied);
}

TEST_F(SharedBlockTest, DoesNotCopyAnUnchangedVersion) {
  Write(5);
  bool copied = false;
  EXPECT_EQ(reader_->TryRead(5, [&] { copied = true; }), Version{5});
  EXPECT_FALSE(copied);
  EXPECT_EQ(reader_->TryRead(4, [&] { copied = true; }), Version{5});
  EXPECT_TRUE(copied);
}

TEST_F(SharedBlockTest, DoesNotReadABlockDuringAChange) {
  writer_->BeginChange();
  EXPECT_EQ(reader_->TryRead(-1, [] { FAIL() << "copied a block in the middle of a change"; }),
            std::nullopt);
  writer_->EndChange(1);
  EXPECT_EQ(reader_->TryRead(-1, [] {}), Version{1});
}

TEST_F(SharedBlockTest, DetectsAChangeDuringTheCopy) {
  EXPECT_EQ(reader_->TryRead(-1, [&] { Write(1); }), std::nullopt);
  EXPECT_EQ(reader_->TryRead(-1, [&] { writer_->BeginChange(); }), std::nullopt);
}

// Runs a writer and two readers. Each successful read must contain the values of a single version.
TEST_F(SharedBlockTest, ReadersNeverAcceptABlockWithMixedVersions) {
  constexpr int kReaders = 2;
  constexpr int kWholeOnes = 2000;
  constexpr uint64_t kSeed = 1;
  std::atomic<int> reading{kReaders};
  std::thread writer([&] {
    uint64_t random = kSeed;
    for (Version version = 1; reading.load() > 0; ++version) {
      Write(version);
      // Pauses for a random time, at most that of some copies. So readers meet the block before,
      // during and after a change.
      for (uint64_t i = UniformBelow(random, 4000); i > 0 && reading.load() > 0; --i) continue;
    }
  });
  struct Seen {
    int whole = 0;
    int refused = 0;
    int torn = 0;
    int backwards = 0;
  };
  std::vector<Seen> seen(kReaders);
  std::vector<std::thread> readers;
  for (Seen& mine : seen) {
    readers.emplace_back([&] {
      std::vector<float> copy(kFloats);
      Version last = 0;
      while (mine.whole < kWholeOnes) {
        const std::optional<Version> version = reader_->TryRead(
            /*have=*/0, [&] { std::memcpy(copy.data(), read_, kFloats * sizeof(float)); });
        if (!version.has_value() || *version == 0) {
          ++mine.refused;
          std::this_thread::yield();
          continue;
        }
        ++mine.whole;
        if (*version < last) ++mine.backwards;
        last = *version;
        const auto wrong = std::count_if(copy.begin(), copy.end(), [&](float value) {
          return value != static_cast<float>(*version);
        });
        if (wrong > 0) ++mine.torn;
      }
      --reading;
    });
  }
  for (std::thread& thread : readers) thread.join();
  writer.join();
  for (const Seen& mine : seen) {
    std::printf("seed %lu: %d whole, %d refused\n", kSeed, mine.whole, mine.refused);
    EXPECT_EQ(mine.torn, 0);
    EXPECT_EQ(mine.backwards, 0);
  }
}

}  // namespace
}  // namespace torchps
