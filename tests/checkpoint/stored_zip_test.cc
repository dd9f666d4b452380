#include "checkpoint/stored_zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Keeps only the small pieces written to a file, so that archives may exceed memory.
class HeadersOnly final : public FileSystem {
 public:
  class File final : public WritableFile {
   public:
    explicit File(HeadersOnly* files) : files_(*files) {}
    absl::Status Append(absl::string_view data) override {
      if (data.size() < 4096) files_.pieces[files_.size] = std::string(data);
      files_.size += static_cast<int64_t>(data.size());
      return absl::OkStatus();
    }
    absl::Status WriteAt(int64_t, absl::string_view) override { return absl::OkStatus(); }
    absl::Status Truncate(int64_t) override { return absl::OkStatus(); }
    absl::Status Sync() override { return absl::OkStatus(); }
    absl::Status Close() override { return absl::OkStatus(); }
    int64_t size() const override { return files_.size; }

   private:
    HeadersOnly& files_;
  };

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string&) override {
    return std::make_unique<File>(this);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::Status Rename(const std::string&, const std::string&) override { return absl::OkStatus(); }
  absl::Status RemoveFile(const std::string&) override { return absl::OkStatus(); }
  absl::Status RemoveDirectory(const std::string&) override { return absl::OkStatus(); }
  absl::Status CreateDirectories(const std::string&) override { return absl::OkStatus(); }
  absl::Status SyncDirectory(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> List(const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string&) override {
    return absl::UnimplementedError("");
  }

  std::map<int64_t, std::string> pieces;  // by offset
  int64_t size = 0;
};

template <typename T>
T At(const std::string& bytes, size_t offset) {
  T number;
  std::memcpy(&number, bytes.data() + offset, sizeof(number));
  return number;
}

TEST(StoredZipTest, UsesZip64BeyondFourGibibytes) {
  HeadersOnly files;
  auto zip = StoredZip::Create(&files, "a.zip");
  ASSERT_TRUE(zip.ok());
  constexpr uint64_t kPieces = 65;
  const std::string piece(64 << 20, 'x');
  ASSERT_TRUE((*zip)->BeginEntry("large", kPieces * piece.size()).ok());
  for (uint64_t i = 0; i < kPieces; ++i) ASSERT_TRUE((*zip)->Append(piece).ok());
  ASSERT_TRUE((*zip)->AddEntry("last", "world").ok());
  ASSERT_TRUE((*zip)->Finish().ok());

  const std::string& local = files.pieces.begin()->second;
  EXPECT_EQ(At<uint32_t>(local, 22), 0xffffffffu);
  EXPECT_EQ(At<uint64_t>(local, 30 + 5 + 4), kPieces * piece.size());
  const auto& [begin, tail] = *files.pieces.rbegin();
  EXPECT_EQ(At<uint32_t>(tail, 24), 0xffffffffu) << "the size is in the Zip64 field";
  EXPECT_EQ(At<uint64_t>(tail, 46 + 5 + 4), kPieces * piece.size());
  const size_t second = 46 + 5 + 20;
  EXPECT_EQ(At<uint32_t>(tail, second + 24), 5u);
  EXPECT_EQ(At<uint32_t>(tail, second + 42), 0xffffffffu) << "the offset is in the Zip64 field";
  const int64_t place = At<int64_t>(tail, second + 46 + 4 + 4);
  ASSERT_EQ(files.pieces.count(place), 1u);
  EXPECT_EQ(At<uint32_t>(files.pieces[place], 0), 0x04034b50u);
  const size_t end64 = second + 46 + 4 + 12;
  EXPECT_EQ(At<uint32_t>(tail, end64), 0x06064b50u);
  EXPECT_EQ(At<int64_t>(tail, end64 + 48), begin);
}

TEST(StoredZipTest, AlignsEntriesTo64Bytes) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/d").ok());
  auto zip = StoredZip::Create(&files, "/d/a.zip");
  ASSERT_TRUE(zip.ok());
  for (size_t length = 1; length < 70; ++length) {
    ASSERT_TRUE((*zip)->AddEntry(std::string(length, 'n'), absl::StrCat("<", length, ">")).ok());
  }
  ASSERT_TRUE((*zip)->Finish().ok());
  EXPECT_THAT(*files.List("/d"), ElementsAre("a.zip"));
  const std::string bytes = *ReadWholeFile(files, "/d/a.zip", 1 << 20);
  for (size_t length = 1; length < 70; ++length) {
    EXPECT_EQ(bytes.find(absl::StrCat("<", length, ">")) % 64, 0u) << length;
  }
}

TEST(StoredZipTest, AnUnfinishedArchiveIsRemoved) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/d").ok());
  {
    auto zip = StoredZip::Create(&files, "/d/a.zip");
    ASSERT_TRUE((*zip)->AddEntry("a", "b").ok());
  }
  EXPECT_THAT(*files.List("/d"), IsEmpty());
}

}  // namespace
}  // namespace torchps
