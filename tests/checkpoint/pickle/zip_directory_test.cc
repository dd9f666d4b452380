#include "checkpoint/pickle/zip_directory.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/file_system.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Returns a little-endian number.
std::string Number(uint64_t number, size_t bytes) {
  std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
  text.resize(bytes, '\0');
  return text;
}

// Returns a zip archive of `count` empty, stored entries, with Zip64 if the count needs it. See
// PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16.
std::string Archive(uint64_t count) {
  std::string archive;
  std::string directory;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = absl::StrCat("archive/data/", i);
    // The version and the length of the name. Between them, flags, method, time, date, CRC and
    // sizes are 0.
    const std::string fields = Number(45, 22) + Number(name.size(), 4);
    absl::StrAppend(&directory, "PK\1\2", Number(45, 2), fields, Number(0, 10),
                    Number(archive.size(), 4), name);
    absl::StrAppend(&archive, "PK\3\4", fields, name);
  }
  const uint64_t offset = archive.size();
  const uint64_t end = offset + directory.size();
  archive += directory;
  if (count > 0xffff) {
    absl::StrAppend(&archive, "PK\6\6", Number(44, 8), Number(45, 2), Number(45, 2), Number(0, 8),
                    Number(count, 8), Number(count, 8), Number(directory.size(), 8),
                    Number(offset, 8));
    absl::StrAppend(&archive, "PK\6\7", Number(0, 4), Number(end, 8), Number(1, 4));
  }
  const std::string count16 = Number(std::min<uint64_t>(count, 0xffff), 2);
  return absl::StrCat(archive, "PK\5\6", Number(0, 4), count16, count16,
                      Number(directory.size(), 4), Number(offset, 6));
}

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
  EXPECT_TRUE(Check(Archive(0)).ok());
  EXPECT_TRUE(Check(Archive(3)).ok());
  // Counts above 16 bits need Zip64.
  EXPECT_TRUE(Check(Archive(70000)).ok());
  EXPECT_TRUE(Check(Archive(1) + "a comment").ok());
}

TEST_F(ZipDirectoryTest, RejectsACompressedEntryByName) {
  for (const uint64_t entries : {2, 70000}) {
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
  // Each damaged byte of the end record may give an offset beyond the end of the file.
  for (size_t back = 1; back <= 10; ++back) {
    std::string bytes = whole;
    bytes[bytes.size() - back] = '\xff';
    Check(bytes).IgnoreError();
  }
}

}  // namespace
}  // namespace torchps
