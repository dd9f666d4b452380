#include "data/text/token_file.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/test_files.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenFileTest, TokensAreTwoBytesLowFirst) {
  const std::string path =
      WriteFile(NewDirectory(), "train.bin", std::string("\x01\x00\x00\x01\xff\xff\x05\x02", 8));
  const auto file = TokenFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 4);
  std::vector<uint16_t> tokens(4);
  ASSERT_TRUE((*file)->Read(0, 4, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre(1, 256, 65535, 517));
  tokens.resize(2);
  ASSERT_TRUE((*file)->Read(1, 2, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre(256, 65535));
  EXPECT_EQ(*(*file)->Largest(), 65535);
}

TEST(TokenFileTest, TheLargestIsFoundBeyondTheFirstPiece) {
  std::string bytes(2 * 600'000, '\x01');
  bytes[bytes.size() - 2] = '\x02';
  const auto file = TokenFile::Open(WriteFile(NewDirectory(), "t", bytes));
  EXPECT_EQ(*(*file)->Largest(), 258);
}

void ExpectError(const std::string& path, absl::StatusCode code, const std::string& part) {
  const absl::Status status = TokenFile::Open(path).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(TokenFileTest, WhatIsNoFileOfTokensIsNamed) {
  const std::string directory = NewDirectory();
  ExpectError(directory + "/none", absl::StatusCode::kNotFound, "none");
  ExpectError(directory, absl::StatusCode::kInvalidArgument, "got a directory");
  ExpectError("/dev/null", absl::StatusCode::kInvalidArgument, "a device");
  ExpectError(WriteFile(directory, "odd", "abc"), absl::StatusCode::kDataLoss, "got 3 bytes");
  ExpectError(WriteFile(directory, "empty", ""), absl::StatusCode::kDataLoss, "got 0 bytes");
}

TEST(TokenFileTest, AFileThatShrinksMeanwhileIsAnErrorAndNoCrash) {
  const std::string path = WriteFile(NewDirectory(), "t", std::string(40000, 'x'));
  const auto file = TokenFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 1000), 0);
  std::vector<uint16_t> tokens(20000);
  const absl::Status status = (*file)->Read(0, 20000, tokens.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected 20000 tokens, as when it was opened, got its end after 500"));
  EXPECT_FALSE((*file)->Largest().ok());
}

}  // namespace
}  // namespace torchps
