#include "torchps/transport/server_address.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

std::string MakePath(const char* name) { return absl::StrCat(testing::TempDir(), "/", name); }

TEST(AddressSourceTest, ReturnsAPlainAddress) {
  const absl::StatusOr<AddressSource> source = AddressSource::Parse("[::1]:7000");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_FALSE(source->is_file());
  EXPECT_EQ(*source->Find(), "[::1]:7000");
}

TEST(AddressSourceTest, RefusesTextsThatAreNoAddress) {
  for (const char* text : {"", "alpha", "alpha:", ":7000", "alpha:0", "alpha:65536",
                           "file:", "alpha:http", "al pha:7000", "alpha\n:7000"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(AddressSource::Parse(text).status())) << text;
  }
}

TEST(AddressSourceTest, ReadsTheAddressFromAFile) {
  const std::string path = MakePath("server-0");
  const absl::StatusOr<AddressSource> source = AddressSource::Parse(absl::StrCat("file:", path));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE(absl::IsUnavailable(source->Find().status()));
  EXPECT_THAT(std::string(source->Find().status().message()), HasSubstr(path));
  ASSERT_TRUE(WriteAddressFile(path, "alpha:7000").ok());
  EXPECT_EQ(*source->Find(), "alpha:7000");
  ASSERT_TRUE(WriteAddressFile(path, "beta:7001").ok());
  EXPECT_EQ(*source->Find(), "beta:7001");
}

TEST(AddressSourceTest, RefusesAFileWithoutAnAddress) {
  const auto files = MakePosixFileSystem();
  const std::string path = MakePath("other");
  const AddressSource source = *AddressSource::Parse(absl::StrCat("file:", path));
  for (const std::string& contents :
       {std::string(), std::string("hello"), std::string("file:/elsewhere"),
        std::string("alpha:7000\nbeta:7000\n"), std::string(5000, 'a')}) {
    ASSERT_TRUE(WriteFileAtomically(*files, path, contents).ok());
    EXPECT_TRUE(absl::IsUnavailable(source.Find().status())) << contents;
  }
}

}  // namespace
}  // namespace torchps
