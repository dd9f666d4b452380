#include "torchps/data/file/file_bytes.h"

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/test_files.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::StatusOr<std::string>& result) {
  return std::string(result.status().message());
}

TEST(FileBytesTest, ReadsAPlainFileByteForByte) {
  const std::string bytes("a\0b\n\xff", 5);
  const std::string path = WriteFile(NewDirectory(), "plain", bytes);
  EXPECT_EQ(*ReadFileBytes(path), bytes);
}

TEST(FileBytesTest, InflatesGzipWithSeveralMembers) {
  const std::string path = WriteFile(NewDirectory(), "x", Gzip("one ") + Gzip("") + Gzip("two"));
  EXPECT_EQ(*ReadFileBytes(path), "one two");
}

// The file is 60 MB long. If the reader filled a whole buffer for each member, the test would
// exceed its time limit.
TEST(FileBytesTest, ReadsMillionsOfEmptyMembersQuickly) {
  const std::string empty = Gzip("");
  std::string members;
  for (int i = 0; i < 3'000'000; ++i) members += empty;
  const std::string path = WriteFile(NewDirectory(), "x.gz", members + Gzip("end"));
  EXPECT_EQ(*ReadFileBytes(path), "end");
}

TEST(FileBytesTest, InflatesMoreThanOneBuffer) {
  std::string bytes;
  for (int i = 0; i < 700'000; ++i) bytes += std::to_string(i);
  const std::string path = WriteFile(NewDirectory(), "x.gz", Gzip(bytes));
  EXPECT_EQ(*ReadFileBytes(path), bytes);
}

TEST(FileBytesTest, ErrorNamesAMissingFile) {
  const auto result = ReadFileBytes("/nowhere/at-all");
  EXPECT_TRUE(absl::IsNotFound(result.status()));
  EXPECT_THAT(Message(result), HasSubstr("/nowhere/at-all"));
}

TEST(FileBytesTest, RejectsADirectoryAndAPipe) {
  const std::string directory = NewDirectory();
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFileBytes(directory).status()));
  const std::string pipe = directory + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFileBytes(pipe).status()));
}

TEST(FileBytesTest, TruncatedGzipIsDataLoss) {
  const std::string directory = NewDirectory();
  const std::string gzip = Gzip("some text that is long enough to be squeezed, squeezed, squeezed");
  for (size_t length = 2; length < gzip.size(); ++length) {
    const auto result = ReadFileBytes(WriteFile(directory, "cut.gz", gzip.substr(0, length)));
    ASSERT_TRUE(absl::IsDataLoss(result.status())) << length << ": " << result.status();
    EXPECT_THAT(Message(result), HasSubstr("cut.gz"));
  }
}

TEST(FileBytesTest, DetectsFlippedBitsInGzip) {
  const std::string directory = NewDirectory();
  const std::string text = "some text that is long enough to be squeezed, squeezed, squeezed";
  const std::string gzip = Gzip(text);
  int refused = 0;
  for (size_t bit = 16; bit < gzip.size() * 8; ++bit) {
    std::string damaged = gzip;
    damaged[bit / 8] ^= 1 << bit % 8;
    const auto result = ReadFileBytes(WriteFile(directory, "bad.gz", damaged));
    if (result.ok()) {
      EXPECT_EQ(*result, text) << bit;  // the bit is in the time stamp, for example
    } else {
      ASSERT_TRUE(absl::IsDataLoss(result.status())) << bit << ": " << result.status();
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(gzip.size() - 18) * 8 * 9 / 10);
}

TEST(FileBytesTest, TrailingBytesAfterGzipAreDataLoss) {
  const std::string path = WriteFile(NewDirectory(), "tail.gz", Gzip("text") + "rubbish");
  EXPECT_TRUE(absl::IsDataLoss(ReadFileBytes(path).status()));
}

TEST(FileBytesTest, RejectsFilesAboveTheLimit) {
  const std::string directory = NewDirectory();
  const std::string bytes(5'000'000, 'x');
  const std::string bomb = Gzip(bytes);
  ASSERT_LT(bomb.size(), 10'000u);
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadFileBytes(WriteFile(directory, "plain", bytes), 100'000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadFileBytes(WriteFile(directory, "bomb.gz", bomb), 100'000).status()));
  EXPECT_EQ(ReadFileBytes(directory + "/bomb.gz", 5'000'000)->size(), bytes.size());
}

}  // namespace
}  // namespace torchps
