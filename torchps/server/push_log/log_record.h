#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/frame_payload.h"

// Encodes the records of the push log (docs/storage.md, "The push log"). Each header has a fixed
// length and carries a checksum, which protects the lengths in it. Another checksum protects the
// ledger rows, the table of absent elements and the payload that follow. Headers are sealed with
// the segment's salt, which workers do not know, so a payload cannot imitate a header. All
// functions are thread-safe.

namespace torchps {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written in memory order");

// Write and read numbers in the push log's files: little-endian, at any address.
template <typename Number>
void PutLittleEndian(uint8_t* destination, Number number) {
  std::memcpy(destination, &number, sizeof(number));
}

template <typename Number>
Number GetLittleEndian(const uint8_t* source) {
  Number number;
  std::memcpy(&number, source, sizeof(number));
  return number;
}

// The kind of a block's change.
enum class LogKind : uint8_t {
  kInitialValues = 1,  // the payload replaced the values; the version stays 0
  kGradient = 2,       // the optimizer or the running average used the payload: version + 1
  kPassedOver = 3,     // rounds without a gradient: a higher version
  kLedger = 4,         // only the ledger changed: a refused, late or withheld push
};

// Ledger entry of a slot after the change.
struct LogLedgerRow {
  SlotId slot = 0;
  LedgerEntry entry;

  friend bool operator==(const LogLedgerRow& a, const LogLedgerRow& b) {
    return a.slot == b.slot && a.entry == b.entry;
  }
};

// One change of one block, without the payload.
struct LogRecord {
  LogKind kind = LogKind::kLedger;
  // Rises by one per record, over segments and restarts.
  uint64_t sequence = 0;
  // Records up to this sequence were on disk when this record was written.
  uint64_t durable_sequence = 0;
  BlockId block = 0;
  Version base_version = 0;  // the block's version before the change
  Version version = 0;       // after the change
  GradientTerms terms;
  EncodingSpec::Kind encoding = EncodingSpec::FLOAT32;  // of the payload
  std::vector<LogLedgerRow> ledger;
  // Elements of the block without a gradient.
  ElementRuns absent;
};

inline constexpr size_t kLogRecordHeaderBytes = 96;
inline constexpr size_t kLogLedgerRowBytes = 56;

// Number of absent runs in the largest block if every second element is absent. Frames allow fewer
// (kMaxAbsentRuns), but the intersection of the runs of several gradients in one update may have
// more.
inline constexpr size_t kMaxLoggedAbsentRuns = kMaxFramePayloadBytes / sizeof(float) / 2;

// Returns the size of a record in bytes.
// REQUIRES: rows <= kMaxSlots, absent_runs <= kMaxLoggedAbsentRuns, payload_bytes <=
// kMaxFramePayloadBytes.
size_t LogRecordBytes(size_t rows, size_t absent_runs, size_t payload_bytes);

// Writes a record of LogRecordBytes() bytes to `destination`. Leaves out the mark (the first 4
// bytes), the checksums and durable_sequence, which SealLogRecord adds. Uses the payload's encoding
// and ignores `record.encoding`.
// REQUIRES: as LogRecordBytes.
void WriteLogRecord(const LogRecord& record, const FramePayload& payload, uint8_t* destination);

// Completes a record from WriteLogRecord for a segment with this salt, and returns the record's
// length. May be repeated for another segment.
size_t SealLogRecord(uint64_t salt, uint64_t durable_sequence, uint8_t* record);

// The lengths and sequences in a record's header.
struct LogRecordHeader {
  size_t rows = 0;
  size_t absent_runs = 0;
  size_t payload_bytes = 0;
  size_t bytes = 0;  // of the whole record
  uint64_t sequence = 0;
  uint64_t durable_sequence = 0;
};

// DATA_LOSS: the bytes are too short, are not a record of a segment with this salt, fail the
// checksum, or contain an impossible length; the message names the fault.
absl::StatusOr<LogRecordHeader> ReadLogRecordHeader(uint64_t salt, absl::Span<const uint8_t> bytes);

// Reads a whole record. `*payload` refers to `bytes`, which must outlive it. DATA_LOSS as above.
// FramePayload::Check and CheckRuns check payload and absent elements against the block.
absl::Status ReadLogRecord(uint64_t salt, absl::Span<const uint8_t> bytes, LogRecord* record,
                           FramePayload* payload);

}  // namespace torchps
