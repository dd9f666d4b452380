#include "torchps/server/push_log/log_record.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"
#include "torchps/server/push_log/log_segment.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSalt = 0x0123456789abcdef;

FramePayload ReadPayload(EncodingSpec::Kind kind, const std::vector<float>& elements) {
  std::string bytes(EncodedBytes(kind, elements.size(), 0.5), '\0');
  Encode(kind, elements, 0.5, reinterpret_cast<uint8_t*>(bytes.data()));
  // Two slices, with four bytes of another header in front, as received from the network.
  const size_t half = bytes.size() / 2;
  return FramePayload(
      {grpc::Slice("head" + bytes.substr(0, half)), grpc::Slice(bytes.substr(half))},
      /*skipped_bytes=*/4, kind);
}

std::string GetBytes(const FramePayload& payload) {
  std::string bytes(payload.bytes(), '\0');
  payload.CopyBytesTo(reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

LogRecord SomeRecord() {
  LogRecord record;
  record.kind = LogKind::kGradient;
  record.sequence = 12;
  record.block = 3;
  record.base_version = 40;
  record.version = 41;
  record.terms.rate_factor = 0.5;
  record.terms.share = 0.25;
  record.terms.progress = 0x40000000;
  record.terms.gradient_factor = 0.75;
  LedgerEntry entry;
  entry.incarnation = 9;
  entry.last_step = 7;
  entry.last_verdict = SCALED;
  entry.last_lag = 2;
  entry.applied = 6;
  entry.acknowledged_step = 5;
  record.ledger = {{1, entry}};
  return record;
}

std::vector<uint8_t> Sealed(const LogRecord& record, const FramePayload& payload) {
  std::vector<uint8_t> bytes(
      LogRecordBytes(record.ledger.size(), record.absent.size(), payload.bytes()));
  WriteLogRecord(record, payload, bytes.data());
  EXPECT_EQ(SealLogRecord(kSalt, record.durable_sequence, bytes.data()), bytes.size());
  return bytes;
}

void ExpectSame(const LogRecord& a, const LogRecord& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.durable_sequence, b.durable_sequence);
  EXPECT_EQ(a.block, b.block);
  EXPECT_EQ(a.base_version, b.base_version);
  EXPECT_EQ(a.version, b.version);
  EXPECT_TRUE(a.terms == b.terms);
  EXPECT_EQ(a.ledger, b.ledger);
  EXPECT_EQ(a.absent, b.absent);
}

TEST(LogRecordTest, ReadsARecordAsWritten) {
  std::vector<float> elements(1500);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = 0.25f * static_cast<float>(i);
  for (const EncodingSpec::Kind kind :
       {EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16, EncodingSpec::INT8, EncodingSpec::TOP_K}) {
    for (const LogKind what :
         {LogKind::kInitialValues, LogKind::kGradient, LogKind::kPassedOver, LogKind::kLedger}) {
      LogRecord record = SomeRecord();
      record.kind = what;
      record.encoding = kind;
      record.durable_sequence = 9;
      if (what == LogKind::kGradient) record.absent = {{0, 3}, {1000, 1499}};
      record.ledger.push_back({kMaxSlots - 1, LedgerEntry()});
      const FramePayload payload = ReadPayload(kind, elements);
      const std::vector<uint8_t> bytes = Sealed(record, payload);
      LogRecord read;
      FramePayload read_payload;
      const absl::Status status = ReadLogRecord(kSalt, bytes, &read, &read_payload);
      ASSERT_TRUE(status.ok()) << status;
      ExpectSame(read, record);
      EXPECT_EQ(read.encoding, kind);
      EXPECT_EQ(read_payload.encoding(), kind);
      EXPECT_EQ(GetBytes(read_payload), GetBytes(payload));
      EXPECT_TRUE(read_payload.Check(elements.size()).ok());
    }
  }
}

// The round may have more runs of absent elements than each of its gradients.
TEST(LogRecordTest, StoresTheLargestTableOfAbsentRuns) {
  LogRecord record = SomeRecord();
  constexpr auto kElements = static_cast<int64_t>(kMaxFramePayloadBytes / sizeof(float));
  for (int64_t element = 0; element < kElements; element += 2) {
    record.absent.push_back({element, element + 1});
  }
  const std::vector<uint8_t> bytes = Sealed(record, FramePayload());
  LogRecord read;
  FramePayload payload;
  const absl::Status status = ReadLogRecord(kSalt, bytes, &read, &payload);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(read.absent == record.absent);
}

// The example from docs/storage.md.
TEST(LogRecordTest, MatchesTheDocumentedBytes) {
  LogRecord record = SomeRecord();
  record.durable_sequence = 11;
  const std::vector<uint8_t> bytes =
      Sealed(record, ReadPayload(EncodingSpec::FLOAT32, {1.0f, -2.0f}));
  const std::string expected = absl::StrReplaceAll(
      "efcdab89 a8ba3ce0 02 00 0100 03000000 0c00000000000000 0b00000000000000"
      "2800000000000000 2900000000000000 000000000000e03f 000000000000d03f 08000000 459eb120"
      "00000000 00000040 000000000000e83f 0000000000000000"
      "01000000 02000000 0700000000000000 0200000000000000 0600000000000000 0500000000000000"
      "00000000 00000000 0900000000000000 0000803f 000000c0",
      {{" ", ""}});
  EXPECT_EQ(absl::BytesToHexString(
                absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())),
            expected);
  LogSegmentHeader header;
  header.identity = {/*job_id=*/0x1234, /*server_index=*/1, /*server_count=*/2, /*blocks=*/5};
  header.number = 3;
  header.previous_bytes = 256;
  header.first_sequence = 12;
  header.salt = kSalt;
  const auto segment = EncodeLogSegmentHeader(header);
  EXPECT_EQ(absl::BytesToHexString(
                absl::string_view(reinterpret_cast<const char*>(segment.data()), segment.size())),
            absl::StrReplaceAll("544f52434850534c 05000000 01000000 02000000 05000000"
                                "3412000000000000 0300000000000000 0001000000000000"
                                "0c00000000000000 efcdab8967452301 00000000 439f48c6",
                                {{" ", ""}}));
}

TEST(LogRecordTest, RejectsATruncatedRecordAndOneOfAnotherSegment) {
  std::vector<uint8_t> bytes =
      Sealed(SomeRecord(), ReadPayload(EncodingSpec::FLOAT32, {1.0f, -2.0f, 3.0f}));
  LogRecord read;
  FramePayload payload;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const absl::Status status =
        ReadLogRecord(kSalt, absl::MakeConstSpan(bytes).first(length), &read, &payload);
    EXPECT_TRUE(absl::IsDataLoss(status)) << length << ": " << status;
  }
  EXPECT_TRUE(ReadLogRecord(kSalt, bytes, &read, &payload).ok());
  // Another segment has another salt. The record is invalid there, whichever half of the salt
  // differs.
  EXPECT_TRUE(absl::IsDataLoss(ReadLogRecord(kSalt + 1, bytes, &read, &payload)));
  EXPECT_TRUE(absl::IsDataLoss(ReadLogRecord(kSalt + (uint64_t{1} << 32), bytes, &read, &payload)));
  SealLogRecord(kSalt + 1, 0, bytes.data());
  EXPECT_TRUE(ReadLogRecord(kSalt + 1, bytes, &read, &payload).ok());
}

TEST(LogRecordTest, DetectsFlippedBits) {
  uint64_t random = 20261121;
  SCOPED_TRACE(random);
  std::vector<float> elements(200);
  for (float& element : elements) element = static_cast<float>(UniformBelow(random, 1000));
  std::vector<uint8_t> bytes = Sealed(SomeRecord(), ReadPayload(EncodingSpec::FLOAT32, elements));
  LogRecord read;
  FramePayload payload;
  const auto is_refused_with = [&](size_t bit) {
    bytes[bit / 8] ^= 1 << bit % 8;
    const absl::Status status = ReadLogRecord(kSalt, bytes, &read, &payload);
    bytes[bit / 8] ^= 1 << bit % 8;
    return absl::IsDataLoss(status);
  };
  // Flips each bit of the header and the ledger, and 10,000 random bits.
  for (size_t bit = 0; bit < 8 * (kLogRecordHeaderBytes + kLogLedgerRowBytes); ++bit) {
    ASSERT_TRUE(is_refused_with(bit)) << "bit " << bit;
  }
  for (int i = 0; i < 10000; ++i) {
    const size_t bit = UniformBelow(random, 8 * bytes.size());
    ASSERT_TRUE(is_refused_with(bit)) << "bit " << bit;
  }
}

TEST(LogRecordTest, RejectsForgedFieldsWithAValidChecksum) {
  std::vector<uint8_t> bytes = Sealed(SomeRecord(), FramePayload());
  LogRecord read;
  FramePayload payload;
  const auto refusal = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> forged = bytes;
    forged[at] = value;
    SealLogRecord(kSalt, 0, forged.data());
    return std::string(ReadLogRecord(kSalt, forged, &read, &payload).message());
  };
  EXPECT_THAT(refusal(8, 9), HasSubstr("kind 9"));
  EXPECT_THAT(refusal(9, 77), HasSubstr("encoding 77"));
  EXPECT_THAT(refusal(kLogRecordHeaderBytes + 1, 0x10), HasSubstr("slot 4097"));
  EXPECT_THAT(refusal(kLogRecordHeaderBytes + 4, 99), HasSubstr("verdict 99"));
  LogRecord partial = SomeRecord();
  partial.absent = {{4, 6}};
  bytes = Sealed(partial, FramePayload());
  EXPECT_THAT(refusal(kLogRecordHeaderBytes + kLogLedgerRowBytes + 4, 0),
              HasSubstr("from element 4 to 4"));
}

TEST(LogSegmentTest, ReadsASegmentHeaderAndDetectsDamage) {
  LogSegmentHeader header;
  header.identity = {7, 1, 4, 99};
  header.number = 12;
  header.previous_bytes = 4711;
  header.first_sequence = 1000;
  header.salt = kSalt;
  auto bytes = EncodeLogSegmentHeader(header);
  const auto read = ReadLogSegmentHeader(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->identity == header.identity);
  EXPECT_EQ(read->number, header.number);
  EXPECT_EQ(read->previous_bytes, header.previous_bytes);
  EXPECT_EQ(read->first_sequence, header.first_sequence);
  EXPECT_EQ(read->salt, header.salt);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(ReadLogSegmentHeader(absl::MakeConstSpan(bytes).first(length)).ok());
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= 1 << bit % 8;
    EXPECT_FALSE(ReadLogSegmentHeader(bytes).ok()) << bit;
    bytes[bit / 8] ^= 1 << bit % 8;
  }
}

// The example from docs/storage.md, but in format version 4, which had no salt.
TEST(LogSegmentTest, RefusesASegmentOfAnOlderVersion) {
  const std::string bytes = absl::HexStringToBytes(absl::StrReplaceAll(
      "544f52434850534c 04000000 01000000 02000000 05000000 3412000000000000 0300000000000000"
      "0001000000000000 0c00000000000000 00000000 4ebd0e40",
      {{" ", ""}}));
  const std::string with_record = bytes + std::string(96, 'r');
  for (const std::string& file : {bytes, with_record}) {
    const absl::Status read =
        ReadLogSegmentHeader(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(file.data()),
                                                 std::min(file.size(), kLogSegmentHeaderBytes)))
            .status();
    EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
    EXPECT_THAT(std::string(read.message()),
                HasSubstr("has format version 4; this program reads version 5: use the torchps"));
  }
}

TEST(LogSegmentTest, TheNameOfASegmentIsItsNumber) {
  EXPECT_EQ(LogSegmentName(7), "00000000000000000007.log");
  EXPECT_EQ(LogSegmentNumber(LogSegmentName(7)), 7u);
  EXPECT_EQ(LogSegmentNumber(LogSegmentName(UINT64_MAX)), UINT64_MAX);
  for (const char* name : {"7.log", "00000000000000000000.log", "00000000000000000007.log.tmp",
                           "0000000000000000000x.log", "+0000000000000000007.log", "",
                           "99999999999999999999.log", " 0000000000000000007.log"}) {
    EXPECT_FALSE(LogSegmentNumber(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace torchps
