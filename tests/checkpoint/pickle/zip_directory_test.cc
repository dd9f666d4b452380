#include "torchps/checkpoint/pickle/zip_directory.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/checkpoint/pickle/zip_archive.h"
#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using testing::ZipArchive;

class ZipDirectoryTest : public ::testing::Test {
 protected:
  ZipDirectoryTest() { std::filesystem::create_directories(::testing::TempDir()); }

  absl::Status Check(const std::string& bytes) {
    const std::string path = ::testing::TempDir() + "/checked.zip";
    EXPECT_TRUE(WriteFileAtomically(*files_, path, bytes).ok());
    const auto file = files_->OpenForReading(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return CheckNothingIsCompressed(**file);
  }

  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
};

TEST_F(ZipDirectoryTest, AcceptsStoredEntries) {
  EXPECT_TRUE(Check(ZipArchive(0)).ok());
  EXPECT_TRUE(Check(ZipArchive(3)).ok());
  // Counts above 16 bits need Zip64.
  EXPECT_TRUE(Check(ZipArchive(70000)).ok());
  EXPECT_TRUE(Check(ZipArchive(1) + "a comment").ok());
}

TEST_F(ZipDirectoryTest, RejectsACompressedEntryByName) {
  for (const uint64_t entries : {2, 70000}) {
    std::string bytes = ZipArchive(entries);
    const size_t second = bytes.find("PK\1\2", bytes.find("PK\1\2") + 1);
    ASSERT_NE(second, std::string::npos);
    bytes[second + 10] = 8;
    EXPECT_EQ(Check(bytes).message(), "its entry 'archive/data/1' is compressed");
  }
}

TEST_F(ZipDirectoryTest, RejectsAFileThatIsNoArchive) {
  for (const std::string& bytes : {std::string(), std::string("PK"), std::string(100000, 'P')}) {
    EXPECT_THAT(std::string(Check(bytes).message()), HasSubstr("damaged"));
  }
  const std::string whole = ZipArchive(2);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(Check(whole.substr(0, length)))) << length;
  }
  // Each damaged byte of the end record may give an offset beyond the end of the file.
  for (size_t back = 1; back <= 10; ++back) {
    std::string bytes = whole;
    bytes[bytes.size() - back] = '\xff';
    Check(bytes).IgnoreError();
  }
}

}  // namespace
}  // namespace torchps
