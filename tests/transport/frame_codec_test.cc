#include "torchps/transport/frame_codec.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/slicing.h"
#include "torchps/common/hash.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/transport/encoding.h"

namespace torchps {
namespace {

constexpr EncodingSpec::Kind kKinds[] = {EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16,
                                         EncodingSpec::INT8, EncodingSpec::TOP_K};

using ::testing::HasSubstr;

std::string FromHex(absl::string_view hex) {
  std::string digits;
  for (const char character : hex) {
    if (character != ' ') digits.push_back(character);
  }
  return absl::HexStringToBytes(digits);
}

// Returns the literal bytes of an example in docs/protocol.md, from the fenced block with this
// name. Each line starts with bytes in hexadecimal; two spaces end them.
std::string DocumentedFrame(const std::string& name) {
  std::ifstream page("docs/protocol.md");
  std::string line;
  while (std::getline(page, line) && line != "```" + name) {
  }
  std::string bytes;
  while (std::getline(page, line) && line != "```")
    bytes += FromHex(line.substr(0, line.find("  ")));
  return bytes;
}

// Returns the header fields of the frames in docs/protocol.md.
PushHeader WorkedPushHeader() {
  PushHeader header;
  header.slot = 1;
  header.incarnation = 3;
  header.step = 300;
  header.block = 2;
  header.base_version = 299;
  header.server_incarnation = 7;
  header.weight = 32;
  header.block_count = 4;
  return header;
}

PullHeader WorkedPullHeader() {
  PullHeader header;
  header.block = 2;
  header.version = 300;
  header.block_count = 4;
  header.min_clock = 298;
  header.parked_us = 1500;
  return header;
}

// Returns a number with a random number of bits.
uint64_t AnyMagnitude(uint64_t& random_state) {
  return SplitMix64(random_state) >> UniformBelow(random_state, 64);
}

EncodingSpec::Kind AnyEncoding(uint64_t& random_state) {
  return kKinds[UniformBelow(random_state, std::size(kKinds))];
}

PushHeader RandomPushHeader(uint64_t& random_state) {
  PushHeader header;
  header.slot = static_cast<int32_t>(AnyMagnitude(random_state));
  header.incarnation = AnyMagnitude(random_state);
  header.step = static_cast<int64_t>(AnyMagnitude(random_state));
  header.block = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.base_version = static_cast<int64_t>(AnyMagnitude(random_state));
  header.server_incarnation = AnyMagnitude(random_state);
  header.weight = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.block_count = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.encoding = AnyEncoding(random_state);
  header.withheld = UniformBelow(random_state, 2) == 1;
  header.shared_blocks = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.progress = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.part = UniformBelow(random_state, 2) == 1;
  int64_t end = 0;
  for (uint64_t runs = UniformBelow(random_state, 4); runs > 0; --runs) {
    const int64_t begin = end + 1 + static_cast<int64_t>(UniformBelow(random_state, 1000));
    end = begin + 1 + static_cast<int64_t>(UniformBelow(random_state, 1000));
    header.absent.push_back({begin, end});
  }
  return header;
}

// Returns a header that also has the fields which Protobuf writes after the payload. In a frame,
// the payload must be last, so only frames without a payload have these fields.
PushHeader RandomSharedHeader(uint64_t& random_state) {
  PushHeader header = RandomPushHeader(random_state);
  header.absent.clear();
  header.shared_buffer = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.loss_weight = AnyMagnitude(random_state);
  return header;
}

PullHeader RandomPullHeader(uint64_t& random_state) {
  PullHeader header;
  header.block = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.version = static_cast<int64_t>(AnyMagnitude(random_state));
  header.block_count = static_cast<uint32_t>(AnyMagnitude(random_state));
  header.min_clock = static_cast<int64_t>(AnyMagnitude(random_state));
  header.parked_us = AnyMagnitude(random_state);
  header.encoding = AnyEncoding(random_state);
  header.unchanged = UniformBelow(random_state, 2) == 1;
  header.shared = UniformBelow(random_state, 2) == 1;
  return header;
}

std::vector<float> RandomFloats(int64_t count, uint64_t& random_state) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(UnitDouble(SplitMix64(random_state)));
  return values;
}

std::string RawBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::string GetTable(const ElementRuns& runs) {
  std::string bytes(AbsentTableBytes(runs.size()), '\0');
  WriteAbsentTable(runs, reinterpret_cast<uint8_t*>(&bytes[0]));
  return bytes;
}

PushFrame GetMessageText(const PushHeader& header, const std::vector<float>& payload) {
  PushFrame message;
  message.set_slot(header.slot);
  message.set_incarnation(header.incarnation);
  message.set_step(header.step);
  message.set_block(header.block);
  message.set_base_version(header.base_version);
  message.set_server_incarnation(header.server_incarnation);
  message.set_weight(header.weight);
  message.set_loss_weight(header.loss_weight);
  message.set_block_count(header.block_count);
  message.set_encoding(header.encoding);
  message.set_withheld(header.withheld);
  message.set_shared_blocks(header.shared_blocks);
  message.set_shared_buffer(header.shared_buffer);
  message.set_progress(header.progress);
  message.set_part(header.part);
  message.set_absent_runs(static_cast<uint32_t>(header.absent.size()));
  message.set_payload(GetTable(header.absent) + RawBytes(payload));
  return message;
}

PullFrame GetMessageText(const PullHeader& header, const std::vector<float>& payload) {
  PullFrame message;
  message.set_block(header.block);
  message.set_version(header.version);
  message.set_block_count(header.block_count);
  message.set_min_clock(header.min_clock);
  message.set_parked_us(header.parked_us);
  message.set_encoding(header.encoding);
  message.set_unchanged(header.unchanged);
  message.set_shared(header.shared);
  message.set_payload(RawBytes(payload));
  return message;
}

std::vector<float> Elements(const FramePayload& payload) {
  std::vector<float> elements(payload.bytes() / sizeof(float));
  payload.CopyTo(absl::MakeSpan(elements));
  return elements;
}

// Compares two headers by their Protobuf messages, which contain each field.
void ExpectSame(const PushHeader& actual, const PushHeader& expected) {
  EXPECT_EQ(GetMessageText(actual, {}).ShortDebugString(),
            GetMessageText(expected, {}).ShortDebugString());
}
void ExpectSame(const PullHeader& actual, const PullHeader& expected) {
  EXPECT_EQ(GetMessageText(actual, {}).ShortDebugString(),
            GetMessageText(expected, {}).ShortDebugString());
}

grpc::ByteBuffer OneSlice(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status ParsePushBytes(const std::string& bytes) {
  PushHeader header;
  FramePayload payload;
  return ParsePushFrame(OneSlice(bytes), &header, &payload);
}

void ExpectMalformed(const std::string& bytes, const std::string& reason) {
  const absl::Status status = ParsePushBytes(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("malformed push frame: " + reason));
}

TEST(FrameCodecTest, WritesTheLiteralPushFrame) {
  const std::vector<float> payload = {1.0f, -2.5f};
  EXPECT_EQ(GetBytes(EncodePushFrame(WorkedPushHeader(), payload, nullptr)),
            FromHex("0801 1003 18ac02 2002 28ab02 3007 3820 4004 7a08 0000803f 000020c0"));
}

TEST(FrameCodecTest, WritesTheLiteralPullFrame) {
  const std::vector<float> payload = {0.5f};
  EXPECT_EQ(GetBytes(EncodePullFrame(WorkedPullHeader(), payload, nullptr)),
            FromHex("0802 10ac02 1804 20aa02 28dc0b 7a04 0000003f"));
}

TEST(FrameCodecTest, ReadsTheDocumentedFrames) {
  PushHeader push;
  FramePayload payload;
  ASSERT_TRUE(ParsePushFrame(OneSlice(DocumentedFrame("push-frame")), &push, &payload).ok());
  ExpectSame(push, WorkedPushHeader());
  EXPECT_EQ(Elements(payload), (std::vector<float>{1.0f, -2.5f}));
  EXPECT_EQ(GetBytes(EncodePushFrame(push, Elements(payload), nullptr)),
            DocumentedFrame("push-frame"));

  PushHeader partial = WorkedPushHeader();
  partial.absent = {{1, 3}};
  ASSERT_TRUE(
      ParsePushFrame(OneSlice(DocumentedFrame("partial-push-frame")), &push, &payload).ok());
  ExpectSame(push, partial);
  EXPECT_EQ(Elements(payload), (std::vector<float>{1.0f, 0.0f, 0.0f}));
  EXPECT_EQ(GetBytes(EncodePushFrame(push, Elements(payload), nullptr)),
            DocumentedFrame("partial-push-frame"));

  PullHeader pull;
  ASSERT_TRUE(ParsePullFrame(OneSlice(DocumentedFrame("pull-frame")), &pull, &payload).ok());
  ExpectSame(pull, WorkedPullHeader());
  EXPECT_EQ(Elements(payload), std::vector<float>{0.5f});
  EXPECT_EQ(GetBytes(EncodePullFrame(pull, Elements(payload), nullptr)),
            DocumentedFrame("pull-frame"));
}

// docs/protocol.md shows the encodings of 1.0, -2.5 and 0 (TOP_K: only the largest one).
TEST(FrameCodecTest, WritesTheDocumentedPayloads) {
  const std::vector<float> elements = {1.0f, -2.5f, 0.0f};
  for (const EncodingSpec::Kind kind : kKinds) {
    const std::string name = absl::AsciiStrToLower(EncodingSpec::Kind_Name(kind)) + "-payload";
    std::string bytes(EncodedBytes(kind, 3, /*fraction=*/0.1), '\0');
    Encode(kind, elements, /*fraction=*/0.1, reinterpret_cast<uint8_t*>(&bytes[0]));
    EXPECT_EQ(absl::BytesToHexString(bytes), absl::BytesToHexString(DocumentedFrame(name))) << name;
  }
}

TEST(FrameCodecTest, TheHeaderContainsTheEncodingOfThePayload) {
  PushHeader header = WorkedPushHeader();
  header.encoding = EncodingSpec::BFLOAT16;
  const std::vector<uint8_t> encoded = {0x80, 0x3f, 0x20, 0xc0};
  PushHeader read;
  FramePayload payload;
  ASSERT_TRUE(ParsePushFrame(EncodePushFrame(header, absl::MakeConstSpan(encoded), nullptr), &read,
                             &payload)
                  .ok());
  EXPECT_EQ(read.encoding, EncodingSpec::BFLOAT16);
  EXPECT_EQ(payload.encoding(), EncodingSpec::BFLOAT16);
  std::vector<float> elements(2);
  payload.CopyTo(absl::MakeSpan(elements));
  EXPECT_EQ(elements, (std::vector<float>{1.0f, -2.5f}));
}

TEST(FrameCodecTest, WritesTheBytesOfProtobuf) {
  uint64_t random_state = 11;
  SCOPED_TRACE(testing::Message() << "seed " << random_state);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> payload = RandomFloats(UniformBelow(random_state, 40), random_state);
    const PushHeader push = RandomPushHeader(random_state);
    EXPECT_EQ(GetBytes(EncodePushFrame(push, payload, nullptr)),
              GetMessageText(push, payload).SerializeAsString());
    const PushHeader shared = RandomSharedHeader(random_state);
    EXPECT_EQ(GetBytes(EncodePushFrame(shared, std::vector<float>(), nullptr)),
              GetMessageText(shared, {}).SerializeAsString());
    PushHeader read;
    FramePayload nothing;
    ASSERT_EQ(
        ParsePushFrame(OneSlice(GetMessageText(shared, {}).SerializeAsString()), &read, &nothing),
        absl::OkStatus());
    EXPECT_EQ(read.shared_buffer, shared.shared_buffer);
    EXPECT_EQ(read.loss_weight, shared.loss_weight);
    const PullHeader pull = RandomPullHeader(random_state);
    EXPECT_EQ(GetBytes(EncodePullFrame(pull, payload, nullptr)),
              GetMessageText(pull, payload).SerializeAsString());
    EXPECT_EQ(GetBytes(EncodePullFrame(pull, grpc::Slice(RawBytes(payload)))),
              GetMessageText(pull, payload).SerializeAsString());
  }
}

TEST(FrameCodecTest, ReadsFramesThatAreCutIntoSlicesAnywhere) {
  uint64_t random_state = 12;
  SCOPED_TRACE(testing::Message() << "seed " << random_state);
  for (const int64_t count : {0, 1, 2, 63, 1024, 5001}) {
    for (const size_t longest : {1, 3, 40, 5000, 100000}) {
      SCOPED_TRACE(testing::Message() << count << " elements, slices up to " << longest);
      const std::vector<float> values = RandomFloats(count, random_state);
      FramePayload payload;

      PushHeader push = RandomPushHeader(random_state);
      push.encoding = EncodingSpec::FLOAT32;
      PushHeader push_read;
      ASSERT_TRUE(
          ParsePushFrame(GetBuffer(CutAnywhere(GetBytes(EncodePushFrame(push, values, nullptr)),
                                               longest, random_state)),
                         &push_read, &payload)
              .ok());
      ExpectSame(push_read, push);
      EXPECT_EQ(Elements(payload), values);

      PullHeader pull = RandomPullHeader(random_state);
      pull.encoding = EncodingSpec::FLOAT32;
      PullHeader pull_read;
      ASSERT_TRUE(
          ParsePullFrame(GetBuffer(CutAnywhere(GetBytes(EncodePullFrame(pull, values, nullptr)),
                                               longest, random_state)),
                         &pull_read, &payload)
              .ok());
      ExpectSame(pull_read, pull);
      EXPECT_EQ(Elements(payload), values);
    }
  }
}

TEST(FrameCodecTest, SkipsUnknownFieldsInAnyOrder) {
  // Field 100 is a varint, 101 has 64 bits, 102 has 32 bits, 103 is bytes. Then come the block, the
  // slot and the payload.
  const std::string bytes = FromHex(
      "a006 05  a906 0102030405060708  b506 01020304  ba06 03 616263  2009  0804  7a04 0000803f");
  PushHeader header;
  FramePayload payload;
  ASSERT_TRUE(ParsePushFrame(OneSlice(bytes), &header, &payload).ok());
  EXPECT_EQ(header.slot, 4);
  EXPECT_EQ(header.block, 9u);
  EXPECT_EQ(Elements(payload), std::vector<float>{1.0f});
}

TEST(FrameCodecTest, SkipsAKnownFieldWithUnknownWireType) {
  // The slot has 32 fixed bits here, so Protobuf also treats it as an unknown field.
  PushHeader header;
  FramePayload payload;
  ASSERT_TRUE(ParsePushFrame(OneSlice(FromHex("0d07000000 2009")), &header, &payload).ok());
  EXPECT_EQ(header.slot, 0);
  EXPECT_EQ(header.block, 9u);
}

TEST(FrameCodecTest, ReadsAnEmptyFrameAsZeros) {
  PushHeader header = WorkedPushHeader();
  FramePayload payload({grpc::Slice("abcd")});
  const grpc::ByteBuffer empty(nullptr, 0);
  ASSERT_TRUE(ParsePushFrame(empty, &header, &payload).ok());
  ExpectSame(header, PushHeader());
  EXPECT_EQ(payload.bytes(), 0u);
}

TEST(FrameCodecTest, RefusesAnEmptyBuffer) {
  PushHeader header;
  FramePayload payload;
  EXPECT_EQ(ParsePushFrame(grpc::ByteBuffer(), &header, &payload).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FrameCodecTest, RejectsMalformedAbsentTablesWithTheReason) {
  // Field 12 is the number of runs. The payload begins with their table.
  ExpectMalformed(FromHex("6001"), "it announces a table of 1 runs of absent elements and has no");
  ExpectMalformed(FromHex("6002 7a08 01000000 02000000"),
                  "its payload has 8 bytes and announces a table of 2 runs");
  ExpectMalformed(FromHex("6001 7a08 01000000 00000000"),
                  "a table of absent elements: a run goes from element 1 to 1");
  ExpectMalformed(FromHex("6002 7a10 01000000 02000000 03000000 01000000"),
                  "a table of absent elements: a run goes from element 3 to 4");
  ExpectMalformed(FromHex("60818004 7a00"), "field 12 holds 65537, which exceeds the limit");
}

TEST(FrameCodecTest, RejectsMalformedFramesWithTheReason) {
  ExpectMalformed(FromHex("00"), "there is no field tag at byte 0");
  ExpectMalformed(FromHex("0801 ff"), "there is no field tag at byte 2");
  ExpectMalformed(FromHex("ffffffffff01"), "there is no field tag at byte 0");
  ExpectMalformed(FromHex("08"), "field 1 does not hold an integer of at most 64 bits");
  ExpectMalformed(FromHex("10ffffffffffffffffff02"),
                  "field 2 does not hold an integer of at most 64 bits");
  ExpectMalformed(FromHex("0880808080 10"), "field 1 holds 4294967296, which does not fit 32 bits");
  ExpectMalformed(FromHex("2080808080 10"), "field 4 holds 4294967296, which does not fit 32 bits");
  ExpectMalformed(FromHex("a906 0102"), "field 101 extends beyond the end of the frame");
  ExpectMalformed(FromHex("ba06 05 6162"), "field 103 extends beyond the end of the frame");
  ExpectMalformed(FromHex("ba06 ffffffffffff01"), "field 103 has no valid length");
  ExpectMalformed(FromHex("0b"), "field 1 has wire type 3, which frames do not use");
  ExpectMalformed(FromHex("0f"), "field 1 has wire type 7, which frames do not use");
  ExpectMalformed(FromHex("7a08 0000803f"),
                  "its payload, the last field, should have 8 bytes, but the frame has 4 left");
  ExpectMalformed(FromHex("7a04 0000803f 0801"),
                  "its payload, the last field, should have 4 bytes, but the frame has 6 left");
  ExpectMalformed(FromHex("4805"), "field 9 holds 5, which is not a known encoding");
  // 2 was the number of an encoding that no longer exists.
  ExpectMalformed(FromHex("4802"), "field 9 holds 2, which is not a known encoding");
  ExpectMalformed(FromHex("7a 84808020"), "its payload has 67108868 bytes, the limit is 67108864");
  ExpectMalformed(FromHex("7a ffffffff0f"),
                  "its payload has 4294967295 bytes, the limit is 67108864");
}

TEST(FrameCodecTest, LimitsTheHeaderTo256Bytes) {
  // Returns an unknown field of n + 4 bytes, then a payload with its tag and length in two bytes.
  const auto with_unknown = [](int n) {
    const std::string length = {static_cast<char>((n & 0x7f) | 0x80), static_cast<char>(n >> 7)};
    return FromHex("ba06") + length + std::string(n, 'x') + FromHex("7a04 0000803f");
  };
  EXPECT_TRUE(ParsePushBytes(with_unknown(250)).ok());
  ExpectMalformed(with_unknown(251), "its header is longer than 256 bytes");
  ExpectMalformed(with_unknown(252), "its header is longer than 256 bytes");
  ExpectMalformed(with_unknown(2000), "its header is longer than 256 bytes");
  // Without a payload, the frame consists of its header.
  std::string fields;
  while (fields.size() < 256) fields += FromHex("0801");
  EXPECT_TRUE(ParsePushBytes(fields).ok());
  ExpectMalformed(fields + FromHex("0801"), "its header is longer than 256 bytes");
}

TEST(FrameCodecTest, ErrorsOfAPullFrameNameThePullFrame) {
  PullHeader header;
  FramePayload payload;
  const absl::Status status = ParsePullFrame(OneSlice(FromHex("00")), &header, &payload);
  EXPECT_EQ(status.message(), "malformed pull frame: there is no field tag at byte 0");
}

// Protobuf must read an accepted frame in the same way, and no input may crash.
TEST(FrameCodecTest, AgreesWithProtobufOnDamagedFrames) {
  uint64_t random_state = 13;
  SCOPED_TRACE(testing::Message() << "seed " << random_state);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::vector<float> values = RandomFloats(UniformBelow(random_state, 6), random_state);
    std::string bytes = GetBytes(EncodePushFrame(RandomPushHeader(random_state), values, nullptr));
    const int damages = static_cast<int>(UniformBelow(random_state, 4));
    for (int i = 0; i < damages && !bytes.empty(); ++i) {
      const size_t at = UniformBelow(random_state, bytes.size());
      switch (UniformBelow(random_state, 3)) {
        case 0:
          bytes[at] = static_cast<char>(SplitMix64(random_state));
          break;
        case 1:
          bytes.erase(at, UniformBelow(random_state, 9));
          break;
        case 2:
          bytes.insert(at, 1, static_cast<char>(SplitMix64(random_state)));
          break;
      }
    }
    PushHeader header;
    FramePayload payload;
    const std::vector<grpc::Slice> slices = CutAnywhere(bytes, 20, random_state);
    if (!ParsePushFrame(GetBuffer(slices), &header, &payload).ok()) continue;
    ++accepted;
    PushFrame message;
    ASSERT_TRUE(message.ParseFromString(bytes)) << absl::BytesToHexString(bytes);
    const size_t table_bytes = AbsentTableBytes(header.absent.size());
    ASSERT_EQ(table_bytes + payload.bytes(), message.payload().size())
        << absl::BytesToHexString(bytes);
    if (payload.Check(payload.bytes() / 4).ok() && payload.encoding() == EncodingSpec::FLOAT32) {
      EXPECT_EQ(RawBytes(Elements(payload)), message.payload().substr(table_bytes))
          << absl::BytesToHexString(bytes);
    }
    message.set_payload(message.payload().substr(0, table_bytes));
    message.DiscardUnknownFields();
    EXPECT_EQ(GetMessageText(header, {}).SerializeAsString(), message.SerializeAsString())
        << absl::BytesToHexString(bytes);
  }
  EXPECT_GT(accepted, 5000);
}

TEST(FrameCodecTest, ThePayloadIsBorrowedUntilTheFrameIsDestroyed) {
  const auto values = std::make_shared<std::vector<float>>(1000, 2.0f);
  {
    const grpc::ByteBuffer frame = EncodePushFrame(WorkedPushHeader(), *values, values);
    EXPECT_EQ(values.use_count(), 2);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(frame.Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_EQ(static_cast<const void*>(slices[1].begin()),
              static_cast<const void*>(values->data()));
  }
  EXPECT_EQ(values.use_count(), 1);
}

TEST(FrameCodecTest, AnEmptyPayloadKeepsNothingAlive) {
  const auto owner = std::make_shared<int>(0);
  const grpc::ByteBuffer frame =
      EncodePullFrame(WorkedPullHeader(), absl::Span<const float>(), owner);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(FrameCodecTest, CarriesTheLargestPayload) {
  const std::vector<float> values(kMaxFramePayloadBytes / sizeof(float), 3.0f);
  PushHeader header;
  FramePayload payload;
  const grpc::ByteBuffer frame = EncodePushFrame(WorkedPushHeader(), values, nullptr);
  EXPECT_LE(frame.Length(), static_cast<size_t>(kMaxFrameBytes));
  ASSERT_TRUE(ParsePushFrame(frame, &header, &payload).ok());
  EXPECT_EQ(payload.bytes(), kMaxFramePayloadBytes);
}

TEST(FrameCodecTest, CarriesNonfiniteNumbers) {
  const std::vector<float> values = {std::numeric_limits<float>::infinity(), -0.0f, std::nanf("1")};
  PullHeader header;
  FramePayload payload;
  ASSERT_TRUE(
      ParsePullFrame(EncodePullFrame(WorkedPullHeader(), values, nullptr), &header, &payload).ok());
  const std::vector<float> read = Elements(payload);
  ASSERT_EQ(read.size(), values.size());
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace torchps
