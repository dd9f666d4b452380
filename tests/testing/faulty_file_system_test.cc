// Tests the faulty file system, because other tests depend on it.

#include "tests/testing/faulty_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Operation = FaultyFileSystem::Operation;

constexpr uint64_t kSeeds = 200;

std::string GetContents(FileSystem& files, const std::string& path) {
  const auto contents = ReadWholeFile(files, path, 1 << 20);
  return contents.ok() ? *contents : "(none)";
}

TEST(FaultyFileSystemTest, ACrashKeepsSyncedData) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FaultyFileSystem files;
    ASSERT_TRUE(files.CreateDirectories("/d").ok());
    ASSERT_TRUE(WriteFileAtomically(files, "/d/a", "kept").ok());
    files.Crash(seed);
    EXPECT_EQ(GetContents(files, "/d/a"), "kept") << "seed " << seed;
  }
}

TEST(FaultyFileSystemTest, APowerCutLeavesTheOldOrTheNewFileOfAnAtomicWrite) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FaultyFileSystem files;
    ASSERT_TRUE(files.CreateDirectories("/d").ok());
    ASSERT_TRUE(WriteFileAtomically(files, "/d/a", "old").ok());
    files.PowerOffAt(static_cast<int64_t>(1 + seed % 7));
    const bool done = WriteFileAtomically(files, "/d/a", "new").ok();
    files.Crash(seed);
    const std::string contents = GetContents(files, "/d/a");
    EXPECT_TRUE(contents == "new" || (!done && contents == "old")) << contents << ", seed " << seed;
  }
}

TEST(FaultyFileSystemTest, ACrashKeepsLosesOrTearsUnsyncedData) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FaultyFileSystem files;
    ASSERT_TRUE(files.CreateDirectories("/d").ok());
    ASSERT_TRUE(WriteFileAtomically(files, "/d/a", "1").ok());
    auto file = files.OpenForAppend("/d/a");
    ASSERT_TRUE((*file)->Append("23").ok());
    ASSERT_TRUE((*file)->Append("45").ok());
    files.Crash(seed);
    seen.insert(GetContents(files, "/d/a"));
    EXPECT_EQ((*file)->Append("6").code(), absl::StatusCode::kUnavailable)
        << "the crash invalidates open files";
  }
  EXPECT_THAT(seen, Contains("1"));
  EXPECT_THAT(seen, Contains("12345"));
  EXPECT_THAT(seen, Contains("12")) << "torn";
  EXPECT_THAT(seen, Contains(std::string("1\0\0"
                                         "45",
                                         5)))
      << "a gap of zeros";
}

TEST(FaultyFileSystemTest, ACrashMayLoseANameOfAnUnsyncedDirectory) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FaultyFileSystem files;
    ASSERT_TRUE(files.CreateDirectories("/d").ok());
    auto file = files.CreateFile("/d/a");
    ASSERT_TRUE((*file)->Append("x").ok() && (*file)->Sync().ok());
    files.Crash(seed);
    seen.insert(GetContents(files, "/d/a"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"(none)", "x"}));
}

TEST(FaultyFileSystemTest, ACrashLosesDataOfAFailedSyncEvenIfALaterSyncSucceeds) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/d").ok());
  ASSERT_TRUE(WriteFileAtomically(files, "/d/a", "1").ok());
  auto file = files.OpenForAppend("/d/a");
  ASSERT_TRUE((*file)->Append("2").ok());
  files.FailNth(1, {EIO, 0});
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE((*file)->Sync().ok());
  files.Crash(1);
  EXPECT_EQ(GetContents(files, "/d/a"), "1");
}

TEST(FaultyFileSystemTest, KilledProcessesLoseLocksButNotData) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/d").ok());
  auto lock = files.Lock("/d/lock");
  ASSERT_TRUE(lock.ok());
  auto file = files.CreateFile("/d/a");
  ASSERT_TRUE((*file)->Append("x").ok());
  files.KillProcesses();
  EXPECT_EQ(GetContents(files, "/d/a"), "x");
  auto again = files.Lock("/d/lock");
  EXPECT_TRUE(again.ok());
  lock->reset();
  EXPECT_FALSE(files.Lock("/d/lock").ok()) << "the old handle must not release the new lock";
}

TEST(FaultyFileSystemTest, AWriteBeyondTheCapacityFillsTheDiskAndFails) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/d").ok());
  files.SetCapacity(5);
  auto file = files.CreateFile("/d/a");
  ASSERT_TRUE((*file)->Append("123").ok());
  const absl::Status full = (*file)->Append("4567");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left on device"));
  EXPECT_EQ((*file)->size(), 3);
  EXPECT_EQ(GetContents(files, "/d/a"), "12345");
  files.SetCapacity(100);
  ASSERT_TRUE((*file)->Append("abcd").ok());
  EXPECT_EQ(GetContents(files, "/d/a"), "123abcd");
}

TEST(FaultyFileSystemTest, AHookCanFailOneOperationOnOnePath) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/d").ok());
  files.SetFaultHook([](Operation operation, const std::string& path) {
    return operation == Operation::kRename && path == "/d/a"
               ? std::optional<FaultyFileSystem::Fault>({EROFS, 0})
               : std::nullopt;
  });
  EXPECT_TRUE(WriteFileAtomically(files, "/d/b", "x").ok());
  EXPECT_EQ(WriteFileAtomically(files, "/d/a", "x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(files.List("/d")->size(), 1u) << "no temporary file is left";
}

}  // namespace
}  // namespace torchps
