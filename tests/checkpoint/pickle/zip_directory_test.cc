#include "checkpoint/pickle/zip_directory.h"

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/stored_zip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/file_system.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

class ZipDirectoryTest : public ::testing::Test {
 protected:
  ZipDirectoryTest() { std::filesystem::create_directories(::testing::TempDir()); }

  // Returns an archive with `entries` entries.
  std::string Archive(int entries) {
    const std::string path = ::testing::TempDir() + "/archive.zip";
    const auto zip = StoredZip::Create(files_.get(), path);
    EXPECT_TRUE(zip.ok()) << zip.status();
    for (int i = 0; i < entries; ++i) {
      EXPECT_TRUE((*zip)->AddEntry("archive/data/" + std::to_string(i), "four").ok());
    }
    EXPECT_TRUE((*zip)->Finish().ok());
    const auto bytes = ReadWholeFile(*files_, path, 64 << 20);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return *bytes;
  }

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
  EXPECT_TRUE(Check(Archive(0)).ok());
  EXPECT_TRUE(Check(Archive(3)).ok());
  // Counts above 16 bits need Zip64.
  EXPECT_TRUE(Check(Archive(70000)).ok());
  EXPECT_TRUE(Check(Archive(1) + "a comment").ok());
}

TEST_F(ZipDirectoryTest, NamesACompressedEntry) {
  for (const int entries : {2, 70000}) {
    std::string bytes = Archive(entries);
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
  const std::string whole = Archive(2);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(Check(whole.substr(0, length)))) << length;
  }
  // Offsets beyond the end of the file.
  for (size_t back = 1; back <= 10; ++back) {
    std::string bytes = whole;
    bytes[bytes.size() - back] = '\xff';
    Check(bytes).IgnoreError();
  }
}

}  // namespace
}  // namespace torchps
