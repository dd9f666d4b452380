#include "checkpoint/stored_zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StoredZipTest, EntriesBeginAtMultiplesOfSixtyFour) {
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

TEST(StoredZipTest, AnArchiveThatIsNotFinishedLeavesNothing) {
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
