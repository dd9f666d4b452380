// Tests that a truncated checkpoint, or one with a flipped bit, is never loaded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/testing/faulty_file_system.h"
#include "tests/testing/sample_checkpoint.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr int kServers = 2;

#if defined(TORCHPS_ASAN) || defined(TORCHPS_TSAN)
constexpr int kTurnedBits = 500;
constexpr uint64_t kCrashSeeds = 1;
#else
constexpr int kTurnedBits = 10'000;
constexpr uint64_t kCrashSeeds = 10;
#endif

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() : place_(&files_, "/d") {
    EXPECT_EQ(WriteCheckpoint(files_, "/d", 1, kServers, model_), absl::OkStatus());
    // Server 0 reads these files to restore its blocks.
    paths_ = {place_.ShardPath(1, 0, kServers), place_.ManifestPath(1)};
  }

  absl::Status Load(int server = 0) {
    return RestoreServer(files_, "/d", model_, server, kServers).status();
  }

  const SampleModel model_;
  FaultyFileSystem files_;
  const CheckpointDirectory place_;
  std::vector<std::string> paths_;
};

TEST_F(DamageTest, RejectsTruncatedFiles) {
  ASSERT_EQ(Load(), absl::OkStatus());
  for (const std::string& path : paths_) {
    const std::string whole = *ReadWholeFile(files_, path, 1 << 20);
    for (size_t part = 0; part < 64; ++part) {
      const size_t size = whole.size() * part / 64;
      ASSERT_TRUE(WriteFileAtomically(files_, path, whole.substr(0, size)).ok());
      const absl::Status status = Load();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << path << " of " << size << " bytes";
      EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    }
    ASSERT_TRUE(WriteFileAtomically(files_, path, whole + "x").ok());
    EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss) << "one byte too many";
    ASSERT_TRUE(WriteFileAtomically(files_, path, whole).ok());
  }
  EXPECT_EQ(Load(), absl::OkStatus());
}

TEST_F(DamageTest, RejectsFlippedBits) {
  uint64_t random = 4;
  std::printf("seed %llu\n", static_cast<unsigned long long>(random));
  std::vector<int64_t> sizes;
  int64_t all = 0;
  for (const std::string& path : paths_) {
    sizes.push_back(static_cast<int64_t>(ReadWholeFile(files_, path, 1 << 20)->size()));
    all += sizes.back();
  }
  for (int trial = 0; trial < kTurnedBits; ++trial) {
    int64_t byte = static_cast<int64_t>(UniformBelow(random, static_cast<uint64_t>(all)));
    const int bit = static_cast<int>(UniformBelow(random, 8));
    size_t file = 0;
    while (byte >= sizes[file]) byte -= sizes[file++];
    files_.FlipBit(paths_[file], byte, bit);
    const absl::Status status = Load();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss)
        << paths_[file] << ", byte " << byte << ", bit " << bit;
    files_.FlipBit(paths_[file], byte, bit);
  }
  EXPECT_EQ(Load(), absl::OkStatus());
}

TEST_F(DamageTest, TreatsAnUnreadableSectorAsDamage) {
  ASSERT_EQ(WriteCheckpoint(files_, "/d", 2, kServers, model_, 1), absl::OkStatus());
  files_.SetFaultHook([&](FaultyFileSystem::Operation operation, const std::string& path) {
    return operation == FaultyFileSystem::Operation::kRead && path == place_.ShardPath(2, 0, 2)
               ? std::optional<FaultyFileSystem::Fault>({EIO, 0})
               : std::nullopt;
  });
  const auto restored = RestoreServer(files_, "/d", model_, 0, kServers);
  ASSERT_EQ(restored.status(), absl::OkStatus());
  EXPECT_EQ(restored->checkpoint, 1u);
  EXPECT_THAT(restored->passed_over.at(0), HasSubstr("Input/output error"));
}

TEST_F(DamageTest, ErrorNamesAFileThatIsNotSafetensors) {
  ASSERT_TRUE(WriteFileAtomically(files_, paths_[0], "#!/bin/sh\necho hello, world\n").ok());
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(paths_[0] + " is not a safetensors file"));
}

// Takes the next checkpoint on one server and removes the previous one, like the checkpointer and
// the coordinator.
absl::Status NextCheckpoint(FileSystem& files, const SampleModel& model, uint64_t number) {
  absl::Status status =
      WriteCheckpoint(files, "/d", number, 1, model, static_cast<int64_t>(number));
  if (!status.ok()) return status;
  return CheckpointDirectory(&files, "/d").Prune(0, 1, number, {number});
}

TEST(CrashTest, AnyPowerCutLeavesAnIntactCheckpoint) {
  const SampleModel model;
  int64_t operations = 0;
  {
    FaultyFileSystem files;
    ASSERT_TRUE(NextCheckpoint(files, model, 1).ok());
    const int64_t before = files.operations();
    ASSERT_TRUE(NextCheckpoint(files, model, 2).ok());
    operations = files.operations() - before;
  }
  int old = 0;
  int young = 0;
  for (uint64_t seed = 0; seed < kCrashSeeds; ++seed) {
    for (int64_t n = 1; n <= operations + 1; ++n) {
      FaultyFileSystem files;
      ASSERT_TRUE(NextCheckpoint(files, model, 1).ok());
      files.PowerOffAt(n);
      const bool done = NextCheckpoint(files, model, 2).ok();
      files.Crash(seed * 1000 + static_cast<uint64_t>(n));
      const auto restored = RestoreServer(files, "/d", model, 0, 1);
      ASSERT_EQ(restored.status(), absl::OkStatus()) << "operation " << n << ", seed " << seed;
      EXPECT_TRUE(restored->passed_over.empty()) << "operation " << n << ", seed " << seed;
      ASSERT_TRUE(restored->checkpoint == 2 || !done);
      ++(restored->checkpoint == 2 ? young : old);
      const BlockBuffer expected =
          model.Block(restored->blocks[0].range, static_cast<int64_t>(restored->checkpoint));
      EXPECT_EQ(restored->blocks[0].version, expected.version);
      // Training can continue with the next checkpoint.
      const uint64_t next = *CheckpointDirectory(&files, "/d").HighestNumber() + 1;
      ASSERT_EQ(NextCheckpoint(files, model, next), absl::OkStatus());
      EXPECT_EQ(RestoreServer(files, "/d", model, 0, 1)->checkpoint, next);
    }
  }
  EXPECT_GT(old, 0);
  EXPECT_GT(young, 0);
}

TEST(CrashTest, AnyFailureKeepsTheLastGoodCheckpoint) {
  const SampleModel model;
  FaultyFileSystem files;
  ASSERT_TRUE(NextCheckpoint(files, model, 1).ok());
  uint64_t good = 1;
  uint64_t number = 1;
  for (const int error : {ENOSPC, EIO, EROFS, EACCES}) {
    for (int64_t n = 1; n <= 60; ++n) {
      files.FailNth(n, {error, 0});
      const absl::Status status = NextCheckpoint(files, model, ++number);
      if (!status.ok()) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::strerror(error)));
        EXPECT_THAT(std::string(status.message()), HasSubstr("/d"));
      }
      files.FailNth(0, {});
      const auto restored = RestoreServer(files, "/d", model, 0, 1);
      ASSERT_EQ(restored.status(), absl::OkStatus()) << "operation " << n;
      ASSERT_GE(restored->checkpoint, good);
      EXPECT_TRUE(restored->passed_over.empty());
      good = restored->checkpoint;
      if (status.ok()) {
        EXPECT_EQ(good, number);
      }
    }
  }
}

TEST(CrashTest, ReportsAFullDiskAndRecovers) {
  const SampleModel model;
  FaultyFileSystem files;
  ASSERT_TRUE(NextCheckpoint(files, model, 1).ok());
  files.SetCapacity(12'000);
  const absl::Status full = NextCheckpoint(files, model, 2);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(full.message()),
            "cannot write /d/checkpoint-000000000002/server-0-of-1.safetensors.tmp: No space left "
            "on device");
  EXPECT_EQ(RestoreServer(files, "/d", model, 0, 1)->checkpoint, 1u);
  files.SetCapacity(1'000'000);
  EXPECT_EQ(NextCheckpoint(files, model, 3), absl::OkStatus());
  EXPECT_EQ(RestoreServer(files, "/d", model, 0, 1)->checkpoint, 3u);
}

}  // namespace
}  // namespace torchps
