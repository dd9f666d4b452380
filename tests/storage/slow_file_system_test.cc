#include "torchps/storage/slow_file_system.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(SlowFileSystem, DelaysBytesAndSyncs) {
  const auto disk = MakePosixFileSystem();
  std::vector<absl::Duration> pauses;
  const auto slow = MakeSlowFileSystem(disk.get(), *ParseSlowDisk("2:100ms"),
                                       [&](absl::Duration time) { pauses.push_back(time); });
  const std::string path = testing::TempDir() + "/slow_file";
  {
    auto file = slow->CreateFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(std::string(1'000'000, 'a')).ok());
    ASSERT_TRUE((*file)->WriteAt(0, "b").ok());
    ASSERT_TRUE((*file)->Sync().ok());
    EXPECT_EQ((*file)->size(), 1'000'000);
  }
  ASSERT_TRUE(slow->SyncDirectory(testing::TempDir()).ok());
  const auto read = ReadWholeFile(*slow, path, 2'000'000);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, "b" + std::string(999'999, 'a'));
  ASSERT_EQ(pauses.size(), 5u);
  EXPECT_EQ(pauses[0], absl::Milliseconds(500));
  EXPECT_LT(pauses[1], absl::Milliseconds(1));
  EXPECT_EQ(pauses[2], absl::Milliseconds(100));
  EXPECT_EQ(pauses[3], absl::Milliseconds(100));
  EXPECT_EQ(pauses[4], absl::Milliseconds(500));
  EXPECT_TRUE(absl::IsNotFound(slow->OpenForReading(path + ".none").status()));
  EXPECT_TRUE(slow->RemoveFile(path).ok());
}

TEST(SlowFileSystem, ASlowReadSpecificationDelaysOnlyReads) {
  const auto disk = MakePosixFileSystem();
  std::vector<absl::Duration> pauses;
  const auto slow = MakeSlowFileSystem(disk.get(), *ParseSlowDisk("2:reads"),
                                       [&](absl::Duration time) { pauses.push_back(time); });
  const std::string path = testing::TempDir() + "/slow_to_read";
  {
    auto file = slow->CreateFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(std::string(1'000'000, 'a')).ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }
  EXPECT_TRUE(pauses.empty());
  ASSERT_TRUE(ReadWholeFile(*slow, path, 2'000'000).ok());
  EXPECT_EQ(pauses, (std::vector<absl::Duration>{absl::Milliseconds(500)}));
}

TEST(SlowFileSystem, RejectsAnInvalidSpecificationWithTheReason) {
  EXPECT_EQ(ParseSlowDisk("20")->bytes_per_second, 20e6);
  EXPECT_EQ(ParseSlowDisk("20")->sync, absl::ZeroDuration());
  for (const char* const text :
       {"", "0", "-1", "x", "20:", "20:fast", "20:2h", "nan", "20:-1s", ":reads"}) {
    const auto disk = ParseSlowDisk(text);
    EXPECT_EQ(disk.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(disk.status().message(), "is not MB, MB:SYNC or MB:reads"))
        << text;
  }
}

}  // namespace
}  // namespace torchps
