#include "torchps/data/text/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/test_files.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenFileTest, ReadsLittleEndian16BitTokens) {
  const std::string path =
      WriteFile(NewDirectory(), "train.bin", std::string("\x01\x00\x00\x01\xff\xff\x05\x02", 8));
  const auto file = TokenFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 4);
  std::vector<int32_t> tokens(4);
  ASSERT_TRUE((*file)->Read(0, 4, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre(1, 256, 65535, 517));
  tokens.resize(2);
  ASSERT_TRUE((*file)->Read(1, 2, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre(256, 65535));
  EXPECT_EQ(*(*file)->Largest(), 65535);
}

TEST(TokenFileTest, FindsTheLargestTokenInLaterBuffers) {
  std::string bytes(2 * 600'000, '\x01');
  bytes[bytes.size() - 2] = '\x02';
  const auto file = TokenFile::Open(WriteFile(NewDirectory(), "t", bytes));
  EXPECT_EQ(*(*file)->Largest(), 258);
}

// Packs `tokens` with `width` bytes each.
std::string Packed(const std::vector<int64_t>& tokens, int width) {
  std::string bytes;
  for (const int64_t token : tokens) {
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(token >> (8 * i));
  }
  return bytes;
}

std::vector<int64_t> Tokens(int64_t vocabulary) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 600; ++i) tokens.push_back(i * 7919 % vocabulary);
  return tokens;
}

TEST(TokenFileTest, RejectsWiderTokensUnlessTheJobGivesTheirBits) {
  const std::string directory = NewDirectory();
  for (const int64_t vocabulary : {60, 300, 50'000, 70'000, 130'000, 1 << 24}) {
    for (const int width : {4, 8}) {
      std::vector<int64_t> tokens = Tokens(vocabulary);
      const std::string path = WriteFile(directory, "t", Packed(tokens, width));
      const auto file = TokenFile::Open(path, 8 * width);
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_EQ((*file)->size(), 600);
      EXPECT_EQ(*(*file)->Largest(), *std::max_element(tokens.begin(), tokens.end()));
      // -100 marks a masked token. Even with such a mark, Open() recognizes the width.
      tokens[7] = -100;
      WriteFile(directory, "t", Packed(tokens, width));
      const absl::Status refused = TokenFile::Open(path).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("set data.tokens.bits: " + std::to_string(8 * width)));
      EXPECT_TRUE(TokenFile::Open(path, 16).ok());
    }
  }
}

TEST(TokenFileTest, RefusesWiderTokensAfterManyZeros) {
  std::vector<int64_t> tokens(500'000);
  for (const int64_t token : Tokens(300)) tokens.insert(tokens.end(), 1000, token);
  const auto file = TokenFile::Open(WriteFile(NewDirectory(), "t", Packed(tokens, 4)));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("looks like 32-bit tokens"));
}

TEST(TokenFileTest, DoesNotMistake16BitTokensForWider) {
  const std::string directory = NewDirectory();
  for (const int64_t vocabulary : {2, 60, 300, 50'000, 65'536}) {
    std::vector<int64_t> tokens = Tokens(vocabulary);
    // The tokens are bytes of text. Only the special token, 256, needs more than 8 bits, and it is
    // always at an even position.
    for (size_t i = 0; vocabulary == 60 && i < tokens.size(); i += 20) tokens[i] = 256;
    const auto file = TokenFile::Open(WriteFile(directory, "t", Packed(tokens, 2)));
    EXPECT_TRUE(file.ok()) << file.status();
  }
}

// Expects that Open() rejects the file with `words`, and accepts it if the job specifies 16 bits.
void ExpectOtherKind(const std::string& bytes, const std::string& words) {
  const std::string path = WriteFile(NewDirectory(), "t", bytes);
  const absl::Status refused = TokenFile::Open(path).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(words));
  EXPECT_TRUE(TokenFile::Open(path, 16).ok());
}

std::string Reversed(std::string bytes, int width) {
  for (size_t i = 0; i < bytes.size(); i += width) {
    std::reverse(bytes.begin() + i, bytes.begin() + i + width);
  }
  return bytes;
}

// Returns the tokens as an array of type `Number`.
template <typename Number>
std::string Floats(const std::vector<int64_t>& tokens) {
  const std::vector<Number> numbers(tokens.begin(), tokens.end());
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(Number));
}

TEST(TokenFileTest, RejectsTokensOfOtherKinds) {
  const std::vector<int64_t> tokens = Tokens(300);
  ExpectOtherKind(Reversed(Packed(tokens, 2), 2), "is big-endian");
  ExpectOtherKind(Reversed(Packed(tokens, 4), 4), "floating-point or big-endian numbers");
  ExpectOtherKind(Floats<float>(tokens), "floating-point or big-endian numbers");
  ExpectOtherKind(Floats<double>(tokens), "floating-point or big-endian numbers");
  std::mt19937 random(1);
  std::string bytes;
  for (int i = 0; i < 4000; ++i) bytes += static_cast<char>(random() % 200);
  ExpectOtherKind(bytes, "looks like 8-bit tokens");
}

TEST(TokenFileTest, RejectsText) {
  std::string words, numbers;
  for (int i = 0; i < 20; ++i) {
    words += "grüße und küsse, etc.\n";
    numbers += std::to_string(i * 7919) + ", \n";
  }
  if (words.size() % 2 != 0) words += ' ';
  ExpectOtherKind(words, "a text file");
  if (numbers.size() % 2 != 0) numbers += ' ';
  ExpectOtherKind(numbers, "a text file");
  ExpectOtherKind("\x80\x04\x95 ].", "a Python pickle");
}

// Returns an array of three numbers in NumPy's format, version 1.
std::string Numpy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string text = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  text.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + text + "\n" + data;
}

std::string Llmc(int64_t magic, int64_t version, const std::string& data) {
  std::string header = Packed({magic, version, 3}, 4);
  header.resize(1024);
  return header + data;
}

// Expects that the file contains tokens 7, 40000 and `last`.
void ExpectTokens(const std::string& bytes, int bits, int32_t last) {
  const auto file = TokenFile::Open(WriteFile(NewDirectory(), "t", bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->bits(), bits);
  ASSERT_EQ((*file)->size(), 3);
  std::vector<int32_t> tokens(3);
  ASSERT_TRUE((*file)->Read(0, 3, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAre(7, 40000, last));
}

TEST(TokenFileTest, SkipsNumpyAndLlmcHeaders) {
  for (const auto& [type, width] : {std::pair("<u2", 2), std::pair("<u4", 4), std::pair("<i4", 4),
                                    std::pair("<i8", 8), std::pair("<u8", 8)}) {
    const int32_t last = width == 2 ? 5 : 70000;
    ExpectTokens(Numpy(type, "(3,)", Packed({7, 40000, last}, width)), 8 * width, last);
  }
  ExpectTokens(Llmc(20240520, 1, Packed({7, 40000, 5}, 2)), 16, 5);
  ExpectTokens(Llmc(20240801, 7, Packed({7, 40000, 128255}, 4)), 32, 128255);
}

TEST(TokenFileTest, UsesTheNumpyFileIfThereIsNoBinFile) {
  const std::string directory = NewDirectory();
  EXPECT_EQ(TokenPath(directory, "train"), directory + "/train.bin");
  WriteFile(directory, "train.npy", "");
  EXPECT_EQ(TokenPath(directory, "train"), directory + "/train.npy");
  WriteFile(directory, "train.bin", "");
  EXPECT_EQ(TokenPath(directory, "train"), directory + "/train.bin");
}

TEST(TokenFileTest, ErrorNamesANegativeToken) {
  for (const int width : {4, 8}) {
    const auto file =
        TokenFile::Open(WriteFile(NewDirectory(), "t", Packed({1, -1}, width)), 8 * width);
    EXPECT_THAT(std::string((*file)->Largest().status().message()), HasSubstr("got -1 at token 1"));
  }
}

void ExpectError(const std::string& path, absl::StatusCode code, const std::string& part,
                 int bits = 0) {
  const absl::Status status = TokenFile::Open(path, bits).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(TokenFileTest, ErrorNamesAFileWithoutTokens) {
  const std::string directory = NewDirectory();
  ExpectError(directory + "/none", absl::StatusCode::kNotFound, "none");
  ExpectError(directory, absl::StatusCode::kInvalidArgument, "got a directory");
  ExpectError("/dev/null", absl::StatusCode::kInvalidArgument, "a device");
  ExpectError(WriteFile(directory, "odd", "abc"), absl::StatusCode::kDataLoss, "got 3 bytes");
  ExpectError(WriteFile(directory, "odd", "abcdef"), absl::StatusCode::kDataLoss,
              "tokens of 4 bytes each, got 6 bytes", /*bits=*/32);
  ExpectError(WriteFile(directory, "empty", ""), absl::StatusCode::kDataLoss, "got none");
  ExpectError(WriteFile(directory, "zip", std::string("PK\x03\x04 more")),
              absl::StatusCode::kInvalidArgument, "a zip archive");
}

TEST(TokenFileTest, RejectsAnInvalidHeaderWithTheReason) {
  const auto expect = [](const std::string& bytes, absl::StatusCode code, const std::string& part,
                         int bits = 0) {
    ExpectError(WriteFile(NewDirectory(), "t", bytes), code, part, bits);
  };
  const std::string data = Packed({1, 2, 3}, 4);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  expect(Numpy(">u4", "(3,)", data), invalid, "got dtype '>u4' and shape (3,)");
  expect(Numpy("<f4", "(3,)", data), invalid, "dtype uint16");
  expect(Numpy("<u4", "(3, 1)", data), invalid, "one dimension");
  expect(Numpy("<u4", "(3,)", data), invalid, "as in data.tokens.bits, got 32 bits", 16);
  expect(Numpy("<u4", "(4,)", data), absl::StatusCode::kDataLoss, "expected 4 tokens of 32 bits");
  expect("\x93NUMPY", absl::StatusCode::kDataLoss, "NumPy");
  expect(Llmc(20240520, 2, data), invalid, "got version 2");
  expect(Llmc(20240520, 1, data), absl::StatusCode::kDataLoss, "expected 3 tokens of 16 bits");
  // The header and the data, cut at each byte.
  const std::string whole = Numpy("<u4", "(3,)", data);
  for (size_t size = 6; size < whole.size(); ++size) {
    EXPECT_FALSE(TokenFile::Open(WriteFile(NewDirectory(), "t", whole.substr(0, size))).ok())
        << size;
  }
}

TEST(TokenFileTest, ReportsAFileThatShrinks) {
  const std::string path = WriteFile(NewDirectory(), "t", std::string(40000, 'x'));
  const auto file = TokenFile::Open(path, 16);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 1000), 0);
  std::vector<int32_t> tokens(20000);
  const absl::Status status = (*file)->Read(0, 20000, tokens.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected 40000 bytes, as at opening, got the end of the file after 1000"));
  EXPECT_FALSE((*file)->Largest().ok());
}

}  // namespace
}  // namespace torchps
