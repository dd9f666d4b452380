#include "torchps/server/push_log/log_record.h"

#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/check.h"
#include "torchps/storage/crc32c.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {
namespace {

// Offsets of the header's fields.
constexpr size_t kMarkAt = 0;
constexpr size_t kHeaderChecksumAt = 4;
constexpr size_t kKindAt = 8;
constexpr size_t kEncodingAt = 9;
constexpr size_t kRowsAt = 10;
constexpr size_t kBlockAt = 12;
constexpr size_t kSequenceAt = 16;
constexpr size_t kDurableAt = 24;
constexpr size_t kBaseVersionAt = 32;
constexpr size_t kVersionAt = 40;
constexpr size_t kRateFactorAt = 48;
constexpr size_t kShareAt = 56;
constexpr size_t kPayloadBytesAt = 64;
constexpr size_t kBodyChecksumAt = 68;
constexpr size_t kAbsentRunsAt = 72;
constexpr size_t kProgressAt = 76;
constexpr size_t kGradientFactorAt = 80;
constexpr size_t kUnusedAt = 88;  // 8 zero bytes
static_assert(kUnusedAt + 8 == kLogRecordHeaderBytes);

uint32_t Checksum(uint32_t before, const uint8_t* record, size_t from, size_t to) {
  return Crc32c(before, absl::string_view(reinterpret_cast<const char*>(record) + from, to - from));
}

// The mark and the header checksum each use one half of the salt, so a forger must guess both.
uint32_t GetMark(uint64_t salt) { return static_cast<uint32_t>(salt); }

uint32_t HeaderChecksum(uint64_t salt, const uint8_t* record) {
  uint8_t half[4];
  PutLittleEndian(half, static_cast<uint32_t>(salt >> 32));
  return Checksum(Checksum(0, half, 0, sizeof(half)), record, kKindAt, kLogRecordHeaderBytes);
}

uint32_t BodyChecksum(const uint8_t* record, size_t record_bytes) {
  return Checksum(0, record, kLogRecordHeaderBytes, record_bytes);
}

void WriteRow(const LogLedgerRow& row, uint8_t* at) {
  PutLittleEndian(at, static_cast<uint32_t>(row.slot));
  PutLittleEndian(at + 4, static_cast<uint32_t>(row.entry.last_verdict));
  PutLittleEndian(at + 8, row.entry.last_step);
  PutLittleEndian(at + 16, row.entry.last_lag);
  PutLittleEndian(at + 24, row.entry.applied);
  PutLittleEndian(at + 32, row.entry.acknowledged_step);
  PutLittleEndian(at + 40, uint64_t{0});
  PutLittleEndian(at + 48, row.entry.incarnation);
}

absl::Status ReadRow(const uint8_t* at, LogLedgerRow* row) {
  const uint32_t slot = GetLittleEndian<uint32_t>(at);
  const uint32_t verdict = GetLittleEndian<uint32_t>(at + 4);
  if (slot >= static_cast<uint32_t>(kMaxSlots)) {
    return absl::DataLossError(
        absl::StrCat("a row of its ledger names slot ", slot, "; expected 0 to ", kMaxSlots - 1));
  }
  if (!Verdict_IsValid(static_cast<int>(verdict))) {
    return absl::DataLossError(absl::StrCat("a row of its ledger has verdict ", verdict,
                                            ", which this program does not know"));
  }
  row->slot = static_cast<SlotId>(slot);
  row->entry.last_verdict = static_cast<Verdict>(verdict);
  row->entry.last_step = GetLittleEndian<int64_t>(at + 8);
  row->entry.last_lag = GetLittleEndian<int64_t>(at + 16);
  row->entry.applied = GetLittleEndian<uint64_t>(at + 24);
  row->entry.acknowledged_step = GetLittleEndian<int64_t>(at + 32);
  row->entry.incarnation = GetLittleEndian<uint64_t>(at + 48);
  return absl::OkStatus();
}

}  // namespace

size_t LogRecordBytes(size_t rows, size_t absent_runs, size_t payload_bytes) {
  TPS_CHECK(rows <= static_cast<size_t>(kMaxSlots), "a ledger has a row for each slot at most");
  TPS_CHECK(absent_runs <= kMaxLoggedAbsentRuns, "a table of absent elements covers one block");
  TPS_CHECK(payload_bytes <= kMaxFramePayloadBytes, "a payload fits into a frame");
  return kLogRecordHeaderBytes + rows * kLogLedgerRowBytes + AbsentTableBytes(absent_runs) +
         payload_bytes;
}

void WriteLogRecord(const LogRecord& record, const FramePayload& payload, uint8_t* destination) {
  PutLittleEndian(destination + kMarkAt, uint32_t{0});
  PutLittleEndian(destination + kHeaderChecksumAt, uint32_t{0});
  destination[kKindAt] = static_cast<uint8_t>(record.kind);
  destination[kEncodingAt] = static_cast<uint8_t>(payload.encoding());
  PutLittleEndian(destination + kRowsAt, static_cast<uint16_t>(record.ledger.size()));
  PutLittleEndian(destination + kBlockAt, record.block);
  PutLittleEndian(destination + kSequenceAt, record.sequence);
  PutLittleEndian(destination + kDurableAt, uint64_t{0});
  PutLittleEndian(destination + kBaseVersionAt, record.base_version);
  PutLittleEndian(destination + kVersionAt, record.version);
  PutLittleEndian(destination + kRateFactorAt, record.terms.rate_factor);
  PutLittleEndian(destination + kShareAt, record.terms.share);
  PutLittleEndian(destination + kPayloadBytesAt, static_cast<uint32_t>(payload.bytes()));
  PutLittleEndian(destination + kBodyChecksumAt, uint32_t{0});
  PutLittleEndian(destination + kAbsentRunsAt, static_cast<uint32_t>(record.absent.size()));
  PutLittleEndian(destination + kProgressAt, record.terms.progress);
  PutLittleEndian(destination + kGradientFactorAt, record.terms.gradient_factor);
  PutLittleEndian(destination + kUnusedAt, uint64_t{0});
  uint8_t* at = destination + kLogRecordHeaderBytes;
  for (const LogLedgerRow& row : record.ledger) {
    WriteRow(row, at);
    at += kLogLedgerRowBytes;
  }
  WriteAbsentTable(record.absent, at);
  at += AbsentTableBytes(record.absent.size());
  payload.CopyBytesTo(at);
}

size_t SealLogRecord(uint64_t salt, uint64_t durable_sequence, uint8_t* record) {
  const size_t bytes = LogRecordBytes(GetLittleEndian<uint16_t>(record + kRowsAt),
                                      GetLittleEndian<uint32_t>(record + kAbsentRunsAt),
                                      GetLittleEndian<uint32_t>(record + kPayloadBytesAt));
  PutLittleEndian(record + kMarkAt, GetMark(salt));
  PutLittleEndian(record + kDurableAt, durable_sequence);
  PutLittleEndian(record + kBodyChecksumAt, BodyChecksum(record, bytes));
  PutLittleEndian(record + kHeaderChecksumAt, HeaderChecksum(salt, record));
  return bytes;
}

absl::StatusOr<LogRecordHeader> ReadLogRecordHeader(uint64_t salt,
                                                    absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kLogRecordHeaderBytes) {
    return absl::DataLossError(absl::StrCat("a record's header takes ", kLogRecordHeaderBytes,
                                            " bytes; there are ", bytes.size()));
  }
  const uint8_t* const record = bytes.data();
  if (GetLittleEndian<uint32_t>(record + kMarkAt) != GetMark(salt)) {
    return absl::DataLossError("there is no record here");
  }
  if (GetLittleEndian<uint32_t>(record + kHeaderChecksumAt) != HeaderChecksum(salt, record)) {
    return absl::DataLossError("a record's header fails its checksum");
  }
  LogRecordHeader header;
  header.rows = GetLittleEndian<uint16_t>(record + kRowsAt);
  header.absent_runs = GetLittleEndian<uint32_t>(record + kAbsentRunsAt);
  header.payload_bytes = GetLittleEndian<uint32_t>(record + kPayloadBytesAt);
  header.sequence = GetLittleEndian<uint64_t>(record + kSequenceAt);
  header.durable_sequence = GetLittleEndian<uint64_t>(record + kDurableAt);
  // Checksums do not prevent forgery, so limit the memory that a header can request.
  if (header.rows > static_cast<size_t>(kMaxSlots) || header.absent_runs > kMaxLoggedAbsentRuns ||
      header.payload_bytes > kMaxFramePayloadBytes) {
    return absl::DataLossError(absl::StrCat("a record announces ", header.rows,
                                            " rows of a ledger, ", header.absent_runs,
                                            " runs of absent elements and ", header.payload_bytes,
                                            " bytes of payload, above the limits"));
  }
  header.bytes = LogRecordBytes(header.rows, header.absent_runs, header.payload_bytes);
  return header;
}

absl::Status ReadLogRecord(uint64_t salt, absl::Span<const uint8_t> bytes, LogRecord* record,
                           FramePayload* payload) {
  const absl::StatusOr<LogRecordHeader> header = ReadLogRecordHeader(salt, bytes);
  if (!header.ok()) return header.status();
  if (bytes.size() < header->bytes) {
    return absl::DataLossError(
        absl::StrCat("a record takes ", header->bytes, " bytes; there are ", bytes.size()));
  }
  const uint8_t* const start = bytes.data();
  if (GetLittleEndian<uint32_t>(start + kBodyChecksumAt) != BodyChecksum(start, header->bytes)) {
    return absl::DataLossError("a record fails its checksum");
  }
  const uint8_t kind = start[kKindAt];
  if (kind < static_cast<uint8_t>(LogKind::kInitialValues) ||
      kind > static_cast<uint8_t>(LogKind::kLedger)) {
    return absl::DataLossError(
        absl::StrCat("a record is of kind ", kind, ", which this program does not know"));
  }
  const int encoding = start[kEncodingAt];
  if (!EncodingSpec::Kind_IsValid(encoding)) {
    return absl::DataLossError(
        absl::StrCat("a record is in encoding ", encoding, ", which this program does not know"));
  }
  record->kind = static_cast<LogKind>(kind);
  record->encoding = static_cast<EncodingSpec::Kind>(encoding);
  record->sequence = header->sequence;
  record->durable_sequence = header->durable_sequence;
  record->block = GetLittleEndian<uint32_t>(start + kBlockAt);
  record->base_version = GetLittleEndian<int64_t>(start + kBaseVersionAt);
  record->version = GetLittleEndian<int64_t>(start + kVersionAt);
  record->terms.rate_factor = GetLittleEndian<double>(start + kRateFactorAt);
  record->terms.share = GetLittleEndian<double>(start + kShareAt);
  record->terms.progress = GetLittleEndian<uint32_t>(start + kProgressAt);
  record->terms.gradient_factor = GetLittleEndian<double>(start + kGradientFactorAt);
  record->ledger.assign(header->rows, LogLedgerRow());
  const uint8_t* at = start + kLogRecordHeaderBytes;
  for (LogLedgerRow& row : record->ledger) {
    if (absl::Status read = ReadRow(at, &row); !read.ok()) return read;
    at += kLogLedgerRowBytes;
  }
  const size_t table_bytes = AbsentTableBytes(header->absent_runs);
  absl::StatusOr<ElementRuns> absent =
      ReadAbsentTable(absl::MakeConstSpan(at, table_bytes), kMaxLoggedAbsentRuns);
  if (!absent.ok()) return absl::DataLossError(absent.status().message());
  record->absent = *std::move(absent);
  at += table_bytes;
  std::vector<grpc::Slice> slices;
  if (header->payload_bytes > 0) {
    slices.emplace_back(at, header->payload_bytes, grpc::Slice::STATIC_SLICE);
  }
  *payload = FramePayload(std::move(slices), /*skipped_bytes=*/0, record->encoding);
  return absl::OkStatus();
}

}  // namespace torchps
