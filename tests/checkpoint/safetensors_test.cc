#include "torchps/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/storage/crc32c.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FloatBytes(std::vector<float> numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size());
}

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() { EXPECT_TRUE(files_.CreateDirectories("/d").ok()); }

  absl::Status OpenStatus(const std::string& contents) {
    EXPECT_TRUE(WriteFileAtomically(files_, "/d/f", contents).ok());
    return SafetensorsReader::Open(&files_, "/d/f").status();
  }

  FaultyFileSystem files_;
};

// A whole file, byte for byte.
TEST_F(SafetensorsTest, WritesTheDocumentedBytes) {
  auto writer = SafetensorsWriter::Create(&files_, "/d/f", 150);
  ASSERT_TRUE(writer.ok());
  (*writer)->BeginTensor("w", Dtype::kF32, {1, 2});
  ASSERT_TRUE((*writer)->Append(FloatBytes({1.0f, -2.0f})).ok());
  (*writer)->BeginTensor("n", Dtype::kI64, {1});
  const int64_t seven = 7;
  ASSERT_TRUE((*writer)->Append({reinterpret_cast<const char*>(&seven), 8}).ok());
  const auto result = (*writer)->Finish({{"k", "v"}});
  ASSERT_TRUE(result.ok());

  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("n":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})";
  ASSERT_EQ(json.size(), 135u);
  const std::string expected = std::string("\xb8\0\0\0\0\0\0\0", 8) + json +
                               std::string(184 - json.size(), ' ') +
                               std::string("\0\0\x80\x3f\0\0\0\xc0\7\0\0\0\0\0\0\0", 16);
  const auto contents = ReadWholeFile(files_, "/d/f", 1000);
  ASSERT_TRUE(contents.ok());
  EXPECT_EQ(*contents, expected);
  EXPECT_EQ(result->bytes, 208);
  EXPECT_EQ(result->crc32c, Crc32c(0, expected));
}

TEST_F(SafetensorsTest, ReadsWhatItWrote) {
  // This tensor is so long that the writer buffers some of its pieces and writes the others
  // directly.
  std::vector<float> large(100'000);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  auto writer = SafetensorsWriter::Create(&files_, "/d/f", 1000);
  ASSERT_TRUE(writer.ok());
  const char* const names[] = {"small", "a \"quoted\"\nname", "empty", "last"};
  for (const char* const name : names) {
    const bool is_large = std::string(name) != "small" && std::string(name) != "empty";
    const std::vector<float> numbers = is_large                       ? large
                                       : std::string(name) == "small" ? std::vector<float>{1, 2, 3}
                                                                      : std::vector<float>();
    (*writer)->BeginTensor(name, Dtype::kF32, {static_cast<int64_t>(numbers.size())});
    ASSERT_TRUE((*writer)->Append(FloatBytes(numbers)).ok());
  }
  const auto result = (*writer)->Finish({});
  ASSERT_TRUE(result.ok());

  auto reader = SafetensorsReader::Open(&files_, "/d/f");
  ASSERT_EQ(reader.status(), absl::OkStatus());
  const auto crc = (*reader)->Checksum();
  ASSERT_TRUE(crc.ok());
  EXPECT_EQ(*crc, result->crc32c);
  EXPECT_EQ(*crc, Crc32c(0, *ReadWholeFile(files_, "/d/f", 1 << 30)));
  ASSERT_EQ((*reader)->tensors().size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ((*reader)->tensors()[i].name, names[i]);
  std::string bytes(400'000, ' ');
  ASSERT_TRUE((*reader)->Read(3, absl::MakeSpan(&bytes[0], bytes.size())).ok());
  EXPECT_EQ(bytes, FloatBytes(large));
}

TEST_F(SafetensorsTest, AnUnfinishedFileIsRemoved) {
  {
    auto writer = SafetensorsWriter::Create(&files_, "/d/f", 1000);
    ASSERT_TRUE(writer.ok());
    EXPECT_THAT(*files_.List("/d"), ElementsAre("f.tmp"));
  }
  EXPECT_THAT(*files_.List("/d"), ElementsAre());
}

TEST_F(SafetensorsTest, RejectsAFileThatChangesDuringReading) {
  auto writer = SafetensorsWriter::Create(&files_, "/d/f", 150);
  (*writer)->BeginTensor("w", Dtype::kF32, {2});
  ASSERT_TRUE((*writer)->Append(FloatBytes({1, 2})).ok());
  ASSERT_TRUE((*writer)->Finish({}).ok());
  auto reader = SafetensorsReader::Open(&files_, "/d/f");
  ASSERT_TRUE((*reader)->Checksum().ok());
  files_.FlipBit("/d/f", (*reader)->bytes() - 1, 0);
  char out[8];
  const absl::Status status = (*reader)->Read(0, absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/d/f changed while it was read"));
}

TEST_F(SafetensorsTest, AcceptsOnlyZeroAndOneAsBooleans) {
  for (const char last : {0, 1, 2, -1}) {
    auto writer = SafetensorsWriter::Create(&files_, "/d/f", 150);
    (*writer)->BeginTensor("w", Dtype::kU8, {1});
    ASSERT_TRUE((*writer)->Append(std::string(1, last)).ok());
    (*writer)->BeginTensor("mask", Dtype::kBOOL, {3});
    ASSERT_TRUE((*writer)->Append(std::string({1, 0, last})).ok());
    ASSERT_TRUE((*writer)->Finish({}).ok());
    auto reader = SafetensorsReader::Open(&files_, "/d/f");
    ASSERT_TRUE(reader.ok()) << reader.status();
    char out[3];
    EXPECT_TRUE((*reader)->Read(0, absl::MakeSpan(out, 1)).ok());
    const absl::Status status = (*reader)->Read(1, absl::MakeSpan(out));
    if (last == 0 || last == 1) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), absl::StrCat("/d/f is damaged: 'mask' has a boolean that is ",
                                             last == 2 ? 2 : 255, "; expected 0 or 1"));
  }
}

TEST_F(SafetensorsTest, RejectsAnInvalidLengthBeforeAllocating) {
  const auto length = [](uint64_t n) { return std::string(reinterpret_cast<char*>(&n), 8); };
  for (const std::string& contents :
       {std::string(), std::string("1234567"), length(1), length(uint64_t{1} << 62) + "{}",
        length(~uint64_t{0}) + "{}", length(3) + "{}"}) {
    EXPECT_EQ(OpenStatus(contents).code(), absl::StatusCode::kDataLoss) << contents.size();
  }
  EXPECT_EQ(OpenStatus(length(2) + "{}"), absl::OkStatus());
}

struct BadHeader {
  const char* json;
  const char* words;
};

TEST(SafetensorsHeaderTest, RejectsAnInvalidHeaderWithTheReason) {
  // Each header describes a file with 8 bytes of data.
  const BadHeader cases[] = {
      {"", "is not JSON"},
      {"[]", "array in an unexpected place"},
      {"7", "number in an unexpected place"},
      {R"({"a":1})", "its header lists 0"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "number in an unexpected place"},
      {R"({"a":{}})", "lacks dtype, shape or data_offsets of 'a'"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "lacks dtype"},
      {R"({"a":{"dtype":"C64","shape":[2],"data_offsets":[0,8]}})", "its shape needs 16 bytes"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[8,0]}})", "is at [8, 0)"},
      {R"({"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}})", "null in an unexpected place"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "'dtype' of 'a' twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "'a' twice"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "negative number"},
      {R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", "fraction"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "3 data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "is at [8, 0)"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "its shape needs 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "too many elements"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "too large"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "begins at 4; expected 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "its header lists 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "begins at 4; expected 8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x)", "is not JSON"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", "twice"},
      {R"({"__metadata__":{"a":[{"b":[1]},null]}})", "its header lists 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":[1})", "is not JSON"},
  };
  for (const BadHeader& bad : cases) {
    const absl::Status status = ParseSafetensorsHeader(bad.json, 8).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bad.json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.words)) << bad.json;
  }
}

TEST(SafetensorsHeaderTest, SkipsUnknownFieldsAndDtypes) {
  for (const char* const metadata : {"null", "7", "[{}]", R"({"k":"v","n":{"x":[1,-2.5]}})"}) {
    const auto header = ParseSafetensorsHeader(
        absl::StrCat(
            R"({"__metadata__":)", metadata,
            R"(,"a":{"x":{"dtype":[null]},"dtype":"F8_E4M3","y":-1,"shape":[3],)",
            R"("data_offsets":[0,3]},"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})"),
        8);
    ASSERT_EQ(header.status(), absl::OkStatus()) << metadata;
    ASSERT_EQ(header->tensors.size(), 2u);
    EXPECT_EQ(header->tensors[0].dtype, Dtype::kOther);
    EXPECT_EQ(header->tensors[0].other_dtype, "F8_E4M3");
    EXPECT_EQ(header->tensors[1].dtype, Dtype::kU8);
  }
}

// Python's safetensors supports C64, but not C128.
TEST(SafetensorsHeaderTest, StoresDoubleComplexNumbersAsPairs) {
  const SafetensorsHeader header = {
      {{"wide", Dtype::kC128, {3}, 0, 48}, {"half", Dtype::kC64, {}, 48, 56}}, {{"k", "v"}}};
  const std::string json = FormatSafetensorsHeader(header);
  EXPECT_EQ(json, R"({"__metadata__":{"complex":"[\"wide\"]","k":"v"},)"
                  R"("wide":{"dtype":"F64","shape":[3,2],"data_offsets":[0,48]},)"
                  R"("half":{"dtype":"C64","shape":[],"data_offsets":[48,56]}})");
  const auto parsed = ParseSafetensorsHeader(json, 56);
  ASSERT_EQ(parsed.status(), absl::OkStatus());
  EXPECT_EQ(parsed->tensors[0].dtype, Dtype::kC128);
  EXPECT_THAT(parsed->tensors[0].shape, ElementsAre(3));
  EXPECT_EQ(parsed->tensors[1].dtype, Dtype::kC64);
  EXPECT_EQ(parsed->metadata, header.metadata);
}

TEST(SafetensorsHeaderTest, SortsTensorsByOffset) {
  const auto header =
      ParseSafetensorsHeader(R"( {"b":{"shape":[],"data_offsets":[8,12],"dtype":"F32"},)"
                             R"("a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}   )",
                             12);
  ASSERT_EQ(header.status(), absl::OkStatus());
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "b");
}

}  // namespace
}  // namespace torchps
